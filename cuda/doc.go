// Package cuda is the place of the NVIDIA backend: one implementation of
// [github.com/gollm/gollm/device.Device] behind the build tag cuda. It is not
// written yet; the backend of this build is the CPU, which runs everything.
package cuda
