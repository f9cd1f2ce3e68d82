package openai

import (
	"io"
	"net/http"
	"time"
)

// heldBodies is how many bodies of the largest size may be in memory at once.
const heldBodies = 16

// growth is the part of its size by which a body must grow in the same part of [Config.BodyTime]. Whoever sends at
// one rate and is done in that time always does; whoever stops, or goes on by single bytes, does not, and what
// was sent is not held for long.
const growth = 12

// upload reads the body of a request. What has come counts in Server.held as long as the request is answered.
type upload struct {
	s    *Server
	e    *entry
	body io.Reader
	to   *http.ResponseController
	end  time.Time // when all must be there
	due  int64     // bytes that must be there next
}

// newUpload begins to read, unless what the client says it will send has no room.
func (s *Server) newUpload(w http.ResponseWriter, r *http.Request) (*upload, error) {
	u := &upload{s: s, e: entryOf(r), body: http.MaxBytesReader(w, r.Body, s.conf.MaxBody), to: http.NewResponseController(w), end: time.Now().Add(s.conf.BodyTime)}
	if u.full(min(r.ContentLength, s.conf.MaxBody)) {
		return nil, u.busy()
	}
	u.wait()
	return u, nil
}

// limit is how many bytes the bodies of all requests may have.
func (u *upload) limit() int64 { return heldBodies * u.s.conf.MaxBody }

// full reports whether more bytes have no room.
func (u *upload) full(more int64) bool { return u.s.held.Load()+more > u.limit() }

func (u *upload) busy() error {
	return busy("the bodies of requests that run have %d bytes of at most %d; try again later", u.s.held.Load(), u.limit())
}

// wait says until when the next bytes must come.
func (u *upload) wait() {
	u.due = u.e.held + u.e.held/growth + 1
	next := time.Now().Add(u.s.conf.BodyTime / growth)
	if next.After(u.end) {
		next = u.end
	}
	_ = u.to.SetReadDeadline(next) // not every ResponseWriter can
}

// Read reads a part of the body.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	u.e.held += int64(n)
	u.s.held.Add(int64(n))
	switch {
	case err != nil:
		return n, err
	case u.full(0):
		return n, u.busy()
	case u.e.held >= u.due:
		u.wait()
	}
	return n, nil
}
