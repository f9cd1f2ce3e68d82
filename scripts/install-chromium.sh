#!/usr/bin/env bash
# Installs Chromium, which a test opens the report of an evaluation in
# (eval/page/browser_test.go), where the system is Debian's or Ubuntu's and we may.
# Elsewhere it says so, and the test skips.
set -uo pipefail
command -v chromium >/dev/null && exit 0
if ! command -v apt-get >/dev/null || [[ $(id -u) != 0 ]]; then
	echo "there is no chromium, and only root can install one with apt-get: the test of reports will skip"
	exit 0
fi
if ! (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium) >/dev/null; then
	echo "apt-get could not install chromium: the test of reports will skip"
fi
