//go:build cuda || cudaemu

package engine_test

import _ "github.com/gollm/gollm/cuda" // the device that devtest.Device names then
