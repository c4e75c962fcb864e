"""Polynomials of the transcendental functions. Printed by `tools/minimax.py`, which says how they are derived; do not
edit by hand.

Each tuple lists the coefficients from the constant term up; the comment above gives the largest relative error of the
function computed exactly from them.
"""

from __future__ import annotations

# fmt: off
# error 2^-27.9
EXP2_F32 = (
  float.fromhex("0x1.ebfbdcp-3"), float.fromhex("0x1.c6af86p-5"), float.fromhex("0x1.3b2e12p-7"),
  float.fromhex("0x1.5f055ep-10"), float.fromhex("0x1.414d14p-13"),
)
# error 2^-27.8
EXP_F32 = (
  float.fromhex("0x1.fffffcp-2"), float.fromhex("0x1.55549p-3"), float.fromhex("0x1.5558f8p-5"),
  float.fromhex("0x1.123b02p-7"), float.fromhex("0x1.6a2256p-10"),
)
# error 2^-27.1
LOG_F32 = (
  float.fromhex("0x1.555554p-2"), float.fromhex("-0x1.000228p-2"), float.fromhex("0x1.99a006p-3"),
  float.fromhex("-0x1.5471eep-3"), float.fromhex("0x1.22dap-3"), float.fromhex("-0x1.0d88b8p-3"),
  float.fromhex("0x1.055e02p-3"), float.fromhex("-0x1.38a8b6p-4"),
)
# error 2^-27.0
LOG2_F32 = (
  float.fromhex("-0x1.71547p-1"), float.fromhex("0x1.ec7094p-2"), float.fromhex("-0x1.715a86p-2"),
  float.fromhex("0x1.277eaep-2"), float.fromhex("-0x1.eaba2ap-3"), float.fromhex("0x1.a2f0fap-3"),
  float.fromhex("-0x1.874bap-3"), float.fromhex("0x1.7dd642p-3"), float.fromhex("-0x1.c3c1b2p-4"),
)
# error 2^-28.2
SIN_F32 = (
  float.fromhex("-0x1.555556p-3"), float.fromhex("0x1.111108p-7"), float.fromhex("-0x1.a00f88p-13"),
  float.fromhex("0x1.6cd35cp-19"),
)
# error 2^-32.3
COS_F32 = (
  float.fromhex("0x1.55554ap-5"), float.fromhex("-0x1.6c0c1ep-10"), float.fromhex("0x1.99e538p-16"),
)
# error 2^-56.9
EXP2_F64 = (
  float.fromhex("0x1.ebfbdff82c5a1p-3"), float.fromhex("0x1.c6b08d704a043p-5"),
  float.fromhex("0x1.3b2ab6fba0671p-7"), float.fromhex("0x1.5d87fe78c3ebbp-10"),
  float.fromhex("0x1.4309130e06adap-13"), float.fromhex("0x1.ffcbfbc6096dep-17"),
  float.fromhex("0x1.62bfc941a8b9dp-20"), float.fromhex("0x1.b5265517c1a54p-24"),
  float.fromhex("0x1.e61902f8a070cp-28"), float.fromhex("0x1.e7c5c88d6a34fp-32"),
)
# error 2^-56.8
EXP_F64 = (
  float.fromhex("0x1.000000000000ap-1"), float.fromhex("0x1.55555555554f8p-3"),
  float.fromhex("0x1.5555555550754p-5"), float.fromhex("0x1.1111111128173p-7"),
  float.fromhex("0x1.6c16c1846fc73p-10"), float.fromhex("0x1.a01a0128fd26p-13"),
  float.fromhex("0x1.a01999445d1bp-16"), float.fromhex("0x1.71df2721512ecp-19"),
  float.fromhex("0x1.28ae3464ae5a5p-22"), float.fromhex("0x1.ad7e86c22b9c2p-26"),
)
# error 2^-56.4
SIN_F64 = (
  float.fromhex("-0x1.5555555555549p-3"), float.fromhex("0x1.111111110f802p-7"),
  float.fromhex("-0x1.a01a019c01d57p-13"), float.fromhex("0x1.71de35697afc1p-19"),
  float.fromhex("-0x1.ae5e5aae1ca4ep-26"), float.fromhex("0x1.5d8f8bfa09f9fp-33"),
)
# error 2^-59.0
COS_F64 = (
  float.fromhex("0x1.555555555554ap-5"), float.fromhex("-0x1.6c16c16c14efcp-10"),
  float.fromhex("0x1.a01a019c7556bp-16"), float.fromhex("-0x1.27e4f7dfb07cap-22"),
  float.fromhex("0x1.1ee9d0010044ep-29"), float.fromhex("-0x1.8fa0871e878bap-37"),
)
# error 2^-59.4
LOG_F64 = (
  float.fromhex("0x1.5555555555593p-1"), float.fromhex("0x1.999999997f9c2p-2"),
  float.fromhex("0x1.249249422d822p-2"), float.fromhex("0x1.c71c51d4ffa71p-3"),
  float.fromhex("0x1.74664a4c13b11p-3"), float.fromhex("0x1.39a084e9d8c45p-3"),
  float.fromhex("0x1.2f122f3838379p-3"),
)
HALF_PI_F32 = (
  float.fromhex("0x1.921ep+0"), float.fromhex("0x1.b544p-16"), float.fromhex("0x1.0b4612p-34"),
)
HALF_PI_F64 = (
  float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a6p-34"), float.fromhex("0x1.3198a2ep-69"),
  float.fromhex("0x1.b839a252049c1p-104"),
)
HALF_PI_FUSED_F32 = (
  float.fromhex("0x1.921fb4p+0"), float.fromhex("0x1.444p-24"), float.fromhex("0x1.68c234p-39"),
)
HALF_PI_FUSED_F64 = (
  float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a626331p-54"), float.fromhex("0x1.1701b839a252p-88"),
)
TWO_OVER_PI = (
  0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561, 0xB7246E3A,
  0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41,
  0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF,
  0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08,
  0x56033046, 0xFC7B6BAB, 0xF0CFBC20, 0x9AF4361D,
)
# fmt: on
