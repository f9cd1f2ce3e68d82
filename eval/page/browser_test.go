package page

import (
	"context"
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
const images = [...document.querySelectorAll("img")];
seen.images = images.length;
if (document.documentElement.scrollWidth > innerWidth) seen.wide = document.documentElement.scrollWidth;
addEventListener("load", () => {
  const p = document.createElement("p");
  p.id = "probe";
  p.textContent = JSON.stringify({...seen, svgs: document.querySelectorAll("figure svg").length, keys: document.querySelectorAll("svg.key").length, broken: images.filter(i => i.naturalWidth < 500 || i.naturalHeight < 100).length, errors: errors.length});
  document.body.append(p);
});
</script>`

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
	for _, size := range []string{"1200,900", "390,844"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
			"--user-data-dir="+t.TempDir(), "--window-size="+size, "--dump-dom", "file://"+path).Output()
		cancel()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		got := regexp.MustCompile(`<p id="probe">(.*?)</p>`).FindSubmatch(out)
		want := `{"rows":12,"wrong":0,"clicks":34,"empty":0,"wide":0,"images":6,"svgs":7,"keys":3,"broken":0,"errors":0}`
		if got == nil || string(got[1]) != want {
			t.Errorf("%s: the page says %s, want %s", size, got, want)
		}
	}
}
