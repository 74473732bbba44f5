"""Bytes made small: zstd where it helps, with a dictionary of what LangChain messages always repeat.

The dictionary holds class names and field names only, no text of any thread, so the length of one thread's rows
says nothing about another's. A squeezed blob starts with one byte that names how it was made.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import zstandard

PLAIN: Final = b"\x00"
ZSTD: Final = b"\x01"
ZSTD_MESSAGES: Final = b"\x02"
WORTH_TRYING: Final = 96
LEVEL: Final = 1  # of what agents store, level 3 takes a third longer and saves nothing
CLOSE: Final = 3
LARGEST: Final = 1 << 31

# Written once and never changed: stored rows need these very bytes to be read. Improve by adding a new marker.
_MESSAGES_1: Final = (
    b"\xa2id\xa4name\xa4type\xa4args\xa5title\xa6status\xa7created\xa6source\xa5score\xa4text\xa7content\xa4role\xa7success\xa5error"
    b"\x93\xbelangchain_core.messages.system\xadSystemMessage"
    b"\x88\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa6system\xa4name\xc0\xa2id"
    b"\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80"
    b"\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json"
    b"\xbclangchain_core.messages.tool\xabToolMessage\x8a\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80"
    b"\xa4type\xa4tool\xa4name\xc0\xa2id\xd9$\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json"
    b"\x91\xc7\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x8a\xa7content\xb1additional_kwargs\x81\xa7refusal\xc0"
    b"\xb1response_metadata\x86\xabtoken_usage\x85\xb1completion_tokens\xadprompt_tokens\xactotal_tokens"
    b"\xb9completion_tokens_details\x84\xbaaccepted_prediction_tokens\x00\xacaudio_tokens\x00\xb0reasoning_tokens"
    b"\xb5prompt_tokens_details\xadcached_tokens\x00\xaemodel_provider\xa6openai\xaamodel_name\xb2system_fingerprint"
    b"\xa2id\xa8chatcmpl\xadfinish_reason\xaatool_calls\xa4stop\xa8logprobs\xc0\xa4type\xa2ai\xa4name\xc0\xa2id"
    b"\xaatool_calls\x91\x84\xa4name\xa4args\x81\xa2id\xa5call_\xa4type\xa9tool_call\xb2invalid_tool_calls\x90"
    b"\xaeusage_metadata\x85\xacinput_tokens\xadoutput_tokens\xactotal_tokens\xb3input_token_details\x82\xa5audio\x00"
    b"\xaacache_read\x00\xb4output_token_details\x82\xa5audio\x00\xa9reasoning\x00\xb3model_validate_json"
)


class _Engines:
    """Compressors with their contexts: costly to make, and used by one thread at a time."""

    def __init__(self) -> None:
        self.plain = zstandard.ZstdCompressor(level=LEVEL)
        self.messages = zstandard.ZstdCompressor(level=LEVEL, dict_data=_dictionary(), write_dict_id=False)
        self.back = {
            ZSTD: zstandard.ZstdDecompressor().decompress,
            ZSTD_MESSAGES: zstandard.ZstdDecompressor(dict_data=_dictionary()).decompress,
        }


@cache
def _dictionary() -> zstandard.ZstdCompressionDict:
    dictionary = zstandard.ZstdCompressionDict(_MESSAGES_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    dictionary.precompute_compress(level=LEVEL)
    return dictionary


_idle: Final[list[_Engines]] = []
_LARGE: Final = 16_384


def _lent() -> _Engines:
    """Lend engines that no other thread uses; LangGraph starts new threads for every run, so not one set each."""
    try:
        return _idle.pop()
    except IndexError:
        return _Engines()


def squeeze(raw: bytes, worth: int = WORTH_TRYING) -> bytes:
    """Give the smallest form known of these bytes; of fewer than it is worth the trouble for, as they are."""
    if len(raw) < worth:
        return PLAIN + raw
    engines = _lent()
    try:
        if len(raw) > _LARGE:
            small = ZSTD + engines.plain.compress(raw)
        else:
            small = ZSTD_MESSAGES + engines.messages.compress(raw)
    finally:
        _idle.append(engines)
    return small if len(small) <= len(raw) else PLAIN + raw


def unsqueeze(blob: bytes) -> bytes:
    """Give back what was squeezed; raises `ValueError` for bytes that no `squeeze` made."""
    marker, frame = blob[:1], blob[1:]
    if marker == PLAIN:
        return frame
    engines = _lent()
    try:
        decompress = engines.back.get(marker)
        if decompress is None:
            msg = f"unknown compression marker {marker!r}"
            raise ValueError(msg)
        _check_size(frame)
        raw: bytes = decompress(frame)
    except zstandard.ZstdError as error:
        msg = f"damaged compressed data ({error})"
        raise ValueError(msg) from error
    finally:
        _idle.append(engines)
    return raw


def _check_size(frame: bytes) -> None:
    """Refuse what says that it would become too large: a few bytes could ask for all the memory there is."""
    size = zstandard.frame_content_size(frame)
    if not 0 <= size <= LARGEST:
        msg = f"compressed data that would take {size} bytes"
        raise ValueError(msg)


def squeeze_against(base: bytes, raw: bytes) -> bytes:
    """Squeeze bytes that are much like other bytes of the same thread."""
    dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    squeezed: bytes = zstandard.ZstdCompressor(level=CLOSE, dict_data=dictionary, write_dict_id=False).compress(raw)
    return squeezed


def unsqueeze_against(base: bytes, blob: bytes) -> bytes:
    """Give back what was squeezed against `base`; raises `ValueError` for anything else."""
    dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    try:
        _check_size(blob)
        raw: bytes = zstandard.ZstdDecompressor(dict_data=dictionary).decompress(blob)
    except zstandard.ZstdError as error:
        msg = f"damaged compressed data ({error})"
        raise ValueError(msg) from error
    return raw
