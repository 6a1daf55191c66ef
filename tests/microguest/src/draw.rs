//! Numbers drawn one after the other; the same as in guest/draw.h.

/// What follows `draw`, which is not 0: Marsaglia's xorshift, with the shifts 13, 7 and 17.
pub(crate) fn next_draw(draw: u64) -> u64 {
    let draw = draw ^ draw << 13;
    let draw = draw ^ draw >> 7;
    draw ^ draw << 17
}

/// All that follow `seed`.
pub(crate) fn draws(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |draw| Some(next_draw(*draw))).skip(1)
}

/// What a draw is as a message: from 1 to `largest` bytes.
pub(crate) fn drawn_bytes(draw: u64, largest: u64) -> Vec<u8> {
    let length = 1 + (draw & 0xffff_ffff) % largest;
    (0..length).map(|at| ((draw >> 32) + at).to_le_bytes()[0]).collect()
}
