package gollm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// workshop is a folder with the Makefile, a Go that says what it is asked to build, and
// all that make cuda would install or compile.
func workshop(t *testing.T) (folder string, run func(args ...string) (string, error)) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make")
	}
	folder = t.TempDir()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	put(t, folder, "Makefile", string(makefile), 0o644)
	put(t, folder, "go", `#!/bin/sh
case $1 in
version) cat bin/gollm ;;
*) case "$*" in *"-tags cuda"*) tags=cuda ;; *) tags= ;; esac
   mkdir -p bin && printf "\tbuild\t-tags=%s\n" $tags >bin/gollm
   echo "built for ${tags:-cpu} with $CGO_CFLAGS" ;;
esac
`, 0o755)
	put(t, folder, "scripts/demo.sh", "#!/bin/sh\necho demo\n", 0o755)
	for _, home := range []string{"build/cuda", "mine"} {
		put(t, folder, home+"/include/cuda.h", "#define CUDA_VERSION 12090\n", 0o644)
	}
	for _, nvcc := range []string{"build/cuda/toolkit/bin/nvcc", "mine/nvcc"} {
		put(t, folder, nvcc, "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done; echo $0 >$2; exit ${NVCC_FAILS:-0}\n", 0o755)
	}
	put(t, folder, "build/cuda/lib/libcuda.so", "", 0o644)
	put(t, folder, "cuda/kernels/kernels.cu", "", 0o644)
	return folder, func(args ...string) (string, error) {
		cmd := exec.Command("make", append([]string{"--no-print-directory", "GO=./go"}, args...)...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// put writes a file and the folders above it.
func put(t *testing.T, folder, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestMakeKeepsTheBuild: a target that runs bin/gollm leaves it a program for GPUs, of the
// same headers, if it was one; make build says that it does not.
func TestMakeKeepsTheBuild(t *testing.T) {
	folder, run := workshop(t)
	mine := []string{"NVCC=" + folder + "/mine/nvcc", "CUDA_INCLUDE=" + folder + "/mine/include"}
	for _, step := range []struct {
		args []string
		want string
		not  string
	}{
		{[]string{"demo"}, "built for cpu", "make cuda"},
		{[]string{"build"}, "built for cpu", "make cuda"},
		{[]string{"cuda"}, "built for cuda with -O2 '-I" + folder + "/build/cuda/include'", ""},
		{[]string{"demo"}, "built for cuda with -O2 '-I" + folder + "/build/cuda/include'", "built for cpu"},
		{append([]string{"cuda"}, mine...), "built for cuda with -O2 '-I" + folder + "/mine/include'", ""},
		{[]string{"demo"}, "built for cuda with -O2 '-I" + folder + "/mine/include'", "built for cpu"},
		{[]string{"build"}, "make cuda builds it for both", "built for cuda"},
		{[]string{"demo"}, "built for cpu", "built for cuda"},
	} {
		out, err := run(step.args...)
		if err != nil || !strings.Contains(out, step.want) || step.not != "" && strings.Contains(out, step.not) {
			t.Errorf("make %v: %v, %s\nwant %q and no %q", step.args, err, out, step.want, step.not)
		}
	}
}

// TestMakeChecksHeaders: headers that the Go packages do not compile with are refused
// before anything is compiled, in a line that says what is wanted.
func TestMakeChecksHeaders(t *testing.T) {
	folder, run := workshop(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	for version, want := range map[string]string{"13000": "is of CUDA 13.0", "11070": "is of CUDA 11.7", "": "there is no cuda.h", "11080": "built for cuda", "12090": "built for cuda"} {
		if err := os.RemoveAll(filepath.Join(folder, "mine/include")); err != nil {
			t.Fatal(err)
		}
		if version != "" {
			put(t, folder, "mine/include/cuda.h", "#define CUDA_VERSION "+version+"\n", 0o644)
		}
		out, err := run("cuda", "CUDA_INCLUDE="+folder+"/mine/include")
		refused := want != "built for cuda"
		if !strings.Contains(out, want) || (err != nil) != refused || strings.Contains(out, "11.8 to 12.9") != refused || strings.Contains(out, "built") == refused {
			t.Errorf("headers of %q: %v, %s\nwant %q", version, err, out, want)
		}
	}
}

// TestMakeKernels: kernels are compiled once, again by another compiler and for other
// GPUs, and what a compiler that failed has left counts for nothing.
func TestMakeKernels(t *testing.T) {
	_, run := workshop(t)
	for _, c := range []struct {
		args     []string
		compiles bool
		fails    bool
	}{
		{[]string{"cuda"}, true, true},
		{[]string{"cuda"}, true, false},
		{[]string{"cuda"}, false, false},
		{[]string{"cuda", "GPUS=-gencode arch=compute_90a,code=sm_90a"}, true, false},
		{[]string{"cuda", "GPUS=-gencode arch=compute_90a,code=sm_90a"}, false, false},
		{[]string{"cuda", "NVCC=mine/nvcc", "GPUS=-gencode arch=compute_90a,code=sm_90a"}, true, false},
	} {
		if c.fails {
			t.Setenv("NVCC_FAILS", "1")
		} else {
			t.Setenv("NVCC_FAILS", "0")
		}
		out, err := run(c.args...)
		if (err != nil) != c.fails || strings.Contains(out, "compiling the kernels") != c.compiles {
			t.Errorf("make %v: %v\n%s", c.args, err, out)
		}
	}
}
