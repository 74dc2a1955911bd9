import torch
from torch.backends import cuda

from flm.models.attention import recordable_attention


def test_a_recording_holds_no_attention_that_reads_beyond() -> None:
    before = [cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled()]
    with recordable_attention(torch.device("cuda")):
        assert not cuda.cudnn_sdp_enabled()
        assert cuda.mem_efficient_sdp_enabled()
        assert cuda.math_sdp_enabled()
    with recordable_attention(torch.device("cpu")):
        assert [cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled()] == before
    assert [cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled()] == before
