//go:build cuda || cudaemu

package main

import _ "github.com/gollm/gollm/cuda" // the device "cuda"
