package page

import (
	"context"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// listener counts what goes wrong from the beginning of the page on.
const listener = `<script>const errors = []; addEventListener("error", e => errors.push(e.message));</script>`

// probe runs on the page: it sorts by every column, both ways, and writes what it
// saw into the page.
const probe = `<script>
const seen = {rows: document.querySelectorAll("tbody tr").length, wrong: 0, clicks: 0, empty: 0, wide: 0};
const heads = [...document.querySelectorAll("thead th")];
heads.forEach((head, column) => {
  for (const down of [false, true]) {
    head.firstElementChild.click();
    seen.clicks++;
    const rows = [...document.querySelectorAll("tbody tr")];
    const values = rows.map(r => r.cells[column].dataset.v).filter(v => v !== "");
    if (rows.length !== seen.rows || head.getAttribute("aria-sort") !== (down ? "descending" : "ascending")) seen.wrong++;
    for (let i = 1; i < values.length; i++) {
      const [a, b] = down ? [values[i], values[i - 1]] : [values[i - 1], values[i]];
      if (isNaN(a) || isNaN(b) ? a.localeCompare(b) > 0 : Number(a) > Number(b)) seen.wrong++;
    }
  }
});
for (const svg of document.querySelectorAll("svg")) {
  const box = svg.getBoundingClientRect();
  if (svg.classList.contains("key") ? box.width < 8 : box.width < 100 || box.height < 50) seen.empty++;
  const shape = svg.querySelector("path, rect, polyline");
  if (!shape || shape.getBBox().width <= 0) seen.empty++;
}
// A name that is cut leaves room for the score, says the whole, and shows it when it is tapped.
seen.score = heads[4].getBoundingClientRect().right <= document.querySelector(".scroll").getBoundingClientRect().right;
seen.cut = 0, seen.whole = 0;
for (const name of document.querySelectorAll(".long")) {
  const cut = () => name.scrollHeight > name.clientHeight + 1;
  if (cut() && name.title === name.textContent) seen.cut++;
  name.click();
  if (!cut()) seen.whole++;
}
const images = [...document.querySelectorAll("img")];
seen.images = images.length;
if (document.documentElement.scrollWidth > innerWidth) seen.wide = document.documentElement.scrollWidth;
addEventListener("load", () => {
  const found = {...seen, svgs: document.querySelectorAll("figure svg").length, keys: document.querySelectorAll("svg.key").length, broken: images.filter(i => i.naturalWidth < 500 || i.naturalHeight < 100).length, errors: errors.length};
  parent.postMessage(JSON.stringify({screen: innerWidth, ...found}), "*");
});
</script>`

// screen is a page around the page: a window of Chromium is 500 pixels wide or more,
// which no phone is, and a frame of any width.
const screen = `<!DOCTYPE html><iframe src="page.html" style="width:%dpx;height:844px;border:0"></iframe><p id="probe"></p>
<script>addEventListener("message", e => { document.getElementById("probe").textContent += e.data; });</script>`

// TestBrowser opens the page of a run with every figure in Chromium, on a wide
// screen and on a phone's, and the files of its figures as pictures.
func TestBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on this machine: ", err)
	}
	var b strings.Builder
	drawn := template.HTML(`<svg viewBox="0 0 4 4"><rect width="4" height="4"/></svg>`)
	run := full() // with a name that is wider than a phone
	run.Settings[0].Attn = "prefill=" + strings.Repeat("sketchwalk(density=0.25,heads=mean_score)", 3)
	page, dir := New(run, []Map{{Name: "m", SVG: drawn}}), t.TempDir()
	if err := page.Write(&b); err != nil {
		t.Fatal(err)
	}
	path, images := filepath.Join(dir, "page.html"), ""
	for _, f := range page.Figures() {
		if err := os.WriteFile(filepath.Join(dir, f.File+".svg"), []byte(f.Paper()), 0o666); err != nil {
			t.Fatal(err)
		}
		images += `<img style="max-width:100%" src="` + f.File + `.svg">`
	}
	text := strings.NewReplacer("<head>", "<head>"+listener, "<h1>", images+"<h1>", "</body>", probe+"</body>").Replace(b.String())
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1200, 390} {
		frame := filepath.Join(dir, "screen.html")
		if err := os.WriteFile(frame, fmt.Appendf(nil, screen, width), 0o666); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
			"--user-data-dir="+t.TempDir(), "--window-size=1300,900", "--dump-dom", "file://"+frame).Output()
		cancel()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		got := regexp.MustCompile(`<p id="probe">(.*?)</p>`).FindSubmatch(out)
		want := fmt.Sprintf(`{"screen":%d,"rows":12,"wrong":0,"clicks":34,"empty":0,"wide":0,"score":true,"cut":4,"whole":8,"images":6,"svgs":7,"keys":15,"broken":0,"errors":0}`, width)
		if got == nil || string(got[1]) != want {
			t.Errorf("the page says %s, want %s", got, want)
		}
	}
}
