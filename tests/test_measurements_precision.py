import pytest

from traceread.measurements.precision import format_of_kernel, prevailing_format


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", "bf16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(Params)", "bf16"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)", "bf16"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "bf16"),
        ("nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT", "bf16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32", "bf16"),
        ("Cijk_Ailk_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x288x64", "bf16"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>", "bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_relu_f2f_stages_32x6_tn", "fp16"),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_tn", "fp16"),
        ("volta_h884gemm_64x128_ldg8_nn", "fp16"),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x64x32", "fp16"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)", "tf32"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4", "tf32"),
        ("volta_sgemm_64x64_nt", "fp32"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "fp32"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "fp32"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", "fp32"),
        ("void deep_gemm::fp8_gemm_kernel<4096>", "fp8"),
        ("triton_tem_fused_mm_7", None),
        ("fused_moe_kernel", None),
    ],
)
def test_formats_in_names(name, precision):
    assert format_of_kernel(name) == precision


BF16, FP8, FP32, SILENT = "bf16_gemm", "gemm_e4m3", "sgemm", "triton_mm"


def test_the_format_of_nine_tenths_of_the_time():
    assert prevailing_format([(BF16, 90), (FP32, 10)]) == "bf16"
    assert prevailing_format([(BF16, 40), (BF16, 50), (FP32, 10)]) == "bf16"
    assert prevailing_format([(BF16, 89), (FP8, 11)]) is None


def test_names_that_say_too_little():
    assert prevailing_format([]) is None
    assert prevailing_format([(SILENT, 100)]) is None
    assert prevailing_format([(BF16, 50), (SILENT, 50)]) == "bf16"
    assert prevailing_format([(BF16, 49), (SILENT, 51)]) is None
