package cpu

import "github.com/gollm/gollm/device"

func (r *recorder) StoreChannels(labels, x device.Tensor, c device.Channels, kv device.KV) {
	r.add(func() { r.ops.StoreChannels(labels, x, c, kv) })
}

func (r *recorder) ChannelScores(dst, q, labels device.Tensor, c device.Channels, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.ChannelScores(dst, q, labels, c, kv, p) })
}

func (r *recorder) StoreSigns(signs, x device.Tensor, n device.Net, kv device.KV) {
	r.add(func() { r.ops.StoreSigns(signs, x, n, kv) })
}

func (r *recorder) SignScores(dst, q, signs device.Tensor, n device.Net, kv device.KV, p device.Plan) {
	r.add(func() { r.ops.SignScores(dst, q, signs, n, kv, p) })
}
