package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

func TestVersion(t *testing.T) {
	if out := ok(t, "", "version"); !strings.HasPrefix(out, "gollm ") || !strings.Contains(out, "go1.") {
		t.Errorf("%q", out)
	}
	if flag, command := ok(t, "", "--version"), ok(t, "", "version"); flag != command {
		t.Errorf("--version prints %q, version %q", flag, command)
	}
	if got := devicesText(device.Names()); !strings.HasSuffix(ok(t, "", "version"), ", "+got+"\n") {
		t.Errorf("the version does not end with %q", got)
	}
	if with, without := devicesText([]string{"cpu", "cuda"}), devicesText([]string{"cpu"}); with != "with CUDA" || without != "without CUDA" {
		t.Errorf("%q and %q", with, without)
	}
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got := versionText(info); !strings.HasPrefix(got, "gollm v1.2.3, commit 0123456789ab with changes, go") {
		t.Errorf("%q", got)
	}
}
