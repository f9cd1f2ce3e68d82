//go:build cuda || cudaemu

package sparse_test

import _ "github.com/gollm/gollm/cuda" // the device that devtest.Device names then
