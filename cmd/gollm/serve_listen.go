package main

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// limited is a listener with at most n connections at once. Where there are n, the one that
// has been idle for longest gives way; where none is idle, more wait to be accepted.
func limited(l net.Listener, n int) *limitedListener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{}), idle: list.New(), idling: map[net.Conn]*list.Element{}}
}

type limitedListener struct {
	net.Listener
	slots  chan struct{} // one for each connection
	once   sync.Once
	closed chan struct{}

	mu     sync.Mutex
	full   bool       // Accept waits for a slot
	idle   *list.List // of net.Conn between two requests, the longest so first
	idling map[net.Conn]*list.Element
}

// Accept waits for a connection, and for one of the others to end where there are n.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	default:
		l.setFull(true)
		select {
		case l.slots <- struct{}{}:
			l.setFull(false)
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, end: func() { <-l.slots }}, nil
}

// setFull notes that Accept waits for a slot, and makes room.
func (l *limitedListener) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
	l.makeRoom()
}

// makeRoom closes the connection that has been idle for longest, where Accept waits.
func (l *limitedListener) makeRoom() {
	if e := l.idle.Front(); l.full && e != nil {
		c := l.idle.Remove(e).(net.Conn)
		delete(l.idling, c)
		l.full = false
		_ = c.Close() // its client finds out
	}
}

// note is for [http.Server.ConnState].
func (l *limitedListener) note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.idling[c]; ok {
		l.idle.Remove(e)
		delete(l.idling, c)
	}
	if state == http.StateIdle {
		l.idling[c] = l.idle.PushBack(c)
		l.makeRoom()
	}
}

// Close ends Accept.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	once sync.Once
	end  func()
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.end)
	return err
}
