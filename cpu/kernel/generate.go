package kernel

// The vector loops are written by the module in gen, one file per family.

//go:generate go run -C gen . -family gemm -out ../gemm_avx512_amd64.s -declare ../gemm_avx512_amd64.go
//go:generate go run -C gen . -family pack -out ../pack_avx512_amd64.s -declare ../pack_avx512_amd64.go
//go:generate go run -C gen . -family expand -out ../expand_avx512_amd64.s -declare ../expand_avx512_amd64.go
//go:generate go run -C gen . -family gemvsuper -out ../gemvsuper_avx512_amd64.s -declare ../gemvsuper_avx512_amd64.go
//go:generate go run -C gen . -family gemvblock -out ../gemvblock_avx512_amd64.s -declare ../gemvblock_avx512_amd64.go
//go:generate go run -C gen . -family float -out ../float_avx512_amd64.s -declare ../float_avx512_amd64.go
//go:generate go run -C gen . -family quantize -out ../quantize_avx512_amd64.s -declare ../quantize_avx512_amd64.go
//go:generate go run -C gen . -family peak -out ../peak_avx512_amd64.s -declare ../peak_avx512_amd64.go
//go:generate go run -C gen . -family avx2expand -out ../expand_avx2_amd64.s -declare ../expand_avx2_amd64.go
//go:generate go run -C gen . -family avx2float -out ../float_avx2_amd64.s -declare ../float_avx2_amd64.go
//go:generate go run -C gen . -family avx2gemv -out ../gemv_avx2_amd64.s -declare ../gemv_avx2_amd64.go
//go:generate go run -C gen . -family avx2gemm -out ../gemm_avx2_amd64.s -declare ../gemm_avx2_amd64.go
//go:generate go run -C gen . -family avx2pack -out ../pack_avx2_amd64.s -declare ../pack_avx2_amd64.go
//go:generate go run -C gen . -family avx2quantize -out ../quantize_avx2_amd64.s -declare ../quantize_avx2_amd64.go
//go:generate go run -C gen . -family avx2peak -out ../peak_avx2_amd64.s -declare ../peak_avx2_amd64.go
