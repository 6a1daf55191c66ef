//! Compressed clusters. What they say of their own size is not believed: a cluster is all they can become.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::entry::Damage;

/// How the clusters of an image are compressed, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// What the format calls zlib: a deflate stream, without zlib's header and checksum.
    Deflate,
    /// Zstd frames, none of them empty.
    Zstd,
}

impl Compression {
    /// The cluster that `input` begins with; what follows is of another one.
    pub(super) fn expand(self, input: &[u8], cluster_size: usize) -> Result<Vec<u8>, Damage> {
        let mut cluster = vec![0; cluster_size];
        let is_whole = match self {
            Self::Deflate => inflate(input, &mut cluster),
            Self::Zstd => unpack(input, &mut cluster).is_some(),
        };
        if is_whole { Ok(cluster) } else { Err(Damage::Expansion) }
    }
}

/// How many frames of zstd a cluster may be in. QEMU writes one, and reads as many as there are.
const MAX_FRAMES: usize = 16;

/// How many blocks a cluster may be in.
///
/// A block is some work, for its tables, and hundreds of thousands that hold nothing fit where a cluster does: one that is in
/// more pieces than anybody makes of it is damage. Encoders make blocks of many KiB.
fn most_blocks(cluster_size: usize) -> usize {
    cluster_size / 1024 + 64
}

/// Ends when the cluster is full, whether or not the stream does.
fn inflate(input: &[u8], cluster: &mut [u8]) -> bool {
    let mut decompressor = Box::<DecompressorOxide>::default();
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
    let (mut rest, mut filled) = (input, 0);
    for _ in 0..most_blocks(cluster.len()) {
        let (status, used, more) = decompress(&mut decompressor, rest, cluster, filled, flags);
        filled += more;
        match status {
            TINFLStatus::BlockBoundary if filled < cluster.len() => {
                rest = rest.get(used..).unwrap_or_default();
            }
            TINFLStatus::Done
            | TINFLStatus::BlockBoundary
            | TINFLStatus::HasMoreOutput
            | TINFLStatus::FailedCannotMakeProgress => return filled == cluster.len(),
            _ => return false,
        }
    }
    false
}

/// Takes frames until the cluster is full. The decoder keeps at most what is left of the cluster and one block more
/// (128 KiB); a new one for each frame, as one that is used again would take memory for whatever window a frame claims.
fn unpack(mut input: &[u8], cluster: &mut [u8]) -> Option<()> {
    let mut rest = cluster;
    for _ in 0..MAX_FRAMES {
        let mut decoder = FrameDecoder::new();
        decoder.reset(&mut input).ok()?;
        if !has_few_blocks(input, most_blocks(rest.len())) {
            return None;
        }
        let most = BlockDecodingStrategy::UptoBytes(rest.len() + 1);
        // Not finished means that the frame has more than there is room for.
        let is_finished = decoder.decode_blocks(&mut input, most).ok()?;
        let length = decoder.can_collect();
        if !is_finished || length == 0 || length > rest.len() {
            return None;
        }
        let (part, behind) = rest.split_at_mut(length);
        if std::io::Read::read(&mut decoder, part).ok()? != length {
            return None;
        }
        let stated = decoder.get_checksum_from_data();
        if stated.is_some() && stated != decoder.get_calculated_checksum() {
            return None;
        }
        rest = behind;
        if rest.is_empty() {
            return Some(());
        }
    }
    None
}

/// Whether the frame whose first block `input` begins with ends within this many blocks. Looks at nothing but their headers:
/// a bit that says that it is the last one, two bits for its type, the others for its length (RFC 8878, 3.1.1.2).
fn has_few_blocks(mut input: &[u8], most: usize) -> bool {
    for _ in 0..most {
        let Some(([low, middle, high], rest)) = input.split_first_chunk() else { return false };
        let header = u32::from_le_bytes([*low, *middle, *high, 0]);
        if header & 1 != 0 {
            return true;
        }
        let is_run = header >> 1 & 3 == 1;
        let length = if is_run { 1 } else { header >> 3 };
        let Some(rest) = usize::try_from(length).ok().and_then(|length| rest.get(length..)) else {
            return false;
        };
        input = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use miniz_oxide::deflate::compress_to_vec;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec as pack};

    use super::*;

    const SIZE: usize = 0x1_0000;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        pack(bytes, CompressionLevel::Fastest)
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at / 3 % 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn clusters_expand_whatever_comes_behind_them() {
        let cluster = content(SIZE);
        let forms = [
            (Compression::Deflate, compress_to_vec(&cluster, 6)),
            (Compression::Zstd, packed(&cluster)),
        ];
        for (compression, mut bytes) in forms {
            assert_eq!(compression.expand(&bytes, SIZE), Ok(cluster.clone()));
            bytes.extend([0xa5; 300]);
            assert_eq!(compression.expand(&bytes, SIZE), Ok(cluster.clone()));
        }
    }

    #[test]
    fn less_than_a_cluster_is_damage() {
        for length in [0, 1, SIZE - 1] {
            let cluster = content(length);
            let deflated = compress_to_vec(&cluster, 6);
            assert_eq!(Compression::Deflate.expand(&deflated, SIZE), Err(Damage::Expansion));
            assert_eq!(Compression::Zstd.expand(&packed(&cluster), SIZE), Err(Damage::Expansion));
        }
    }

    #[test]
    fn stream_that_goes_on_stops_at_the_cluster() {
        let bomb = compress_to_vec(&vec![0; 100 * SIZE], 9);
        assert_eq!(Compression::Deflate.expand(&bomb, SIZE), Ok(vec![0; SIZE]));
        assert_eq!(
            Compression::Zstd.expand(&packed(&vec![0; 100 * SIZE]), SIZE),
            Err(Damage::Expansion)
        );
    }

    #[test]
    fn frame_may_end_with_an_empty_block() {
        // A frame of one RLE block of 64 KiB with a window of 64 KiB, ended by an empty raw block.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x30];
        frame.extend(&(SIZE << 3 | 1 << 1).to_le_bytes()[..3]);
        frame.extend([7, 0x01, 0x00, 0x00]);
        assert_eq!(Compression::Zstd.expand(&frame, SIZE), Ok(vec![7; SIZE]));
    }

    #[test]
    fn cluster_may_be_in_several_frames() {
        let cluster = content(SIZE);
        let mut frames = packed(&cluster[..1000]);
        frames.extend(packed(&cluster[1000..]));
        assert_eq!(Compression::Zstd.expand(&frames, SIZE), Ok(cluster));
    }

    /// A frame of raw blocks of these lengths, all of zeroes, with a window of 64 KiB.
    fn frame_of(blocks: &[usize]) -> Vec<u8> {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x30];
        for (at, length) in blocks.iter().enumerate() {
            let is_last = usize::from(at + 1 == blocks.len());
            frame.extend(&(length << 3 | is_last).to_le_bytes()[..3]);
            frame.extend(vec![0; *length]);
        }
        frame
    }

    #[test]
    fn zstd_in_more_pieces_than_anybody_makes_is_damage() {
        let expand = |frames: &[Vec<u8>]| Compression::Zstd.expand(&frames.concat(), SIZE);
        let zeroes = Ok(vec![0; SIZE]);
        let most = most_blocks(SIZE);
        for (frames, expected) in [
            (vec![frame_of(&[SIZE])], zeroes.clone()),
            (vec![frame_of(&[SIZE / MAX_FRAMES]); MAX_FRAMES], zeroes.clone()),
            (vec![frame_of(&[SIZE / 32]); 32], Err(Damage::Expansion)),
            (vec![frame_of(&[]), frame_of(&[0]), frame_of(&[SIZE])], Err(Damage::Expansion)),
            (vec![frame_of(&[vec![0; most - 1], vec![SIZE]].concat())], zeroes),
            (vec![frame_of(&[vec![0; most], vec![SIZE]].concat())], Err(Damage::Expansion)),
        ] {
            assert_eq!(expand(&frames), expected, "{} frames", frames.len());
        }
    }

    #[test]
    fn deflate_in_more_pieces_than_anybody_makes_is_damage() {
        // Stored blocks: a byte that says whether it is the last one, its length and that inverted.
        let stored = |blocks: &[u16]| -> Vec<u8> {
            let block = |length: &u16| {
                let [low, high] = length.to_le_bytes();
                [&[0, low, high, !low, !high][..], &vec![0; usize::from(*length)]].concat()
            };
            blocks.iter().flat_map(block).collect()
        };
        let content = [0xffff, 1];
        let most = most_blocks(SIZE);
        for (empty, expected) in [
            (0, Ok(vec![0; SIZE])),
            (most - 2, Ok(vec![0; SIZE])),
            (most - 1, Err(Damage::Expansion)),
        ] {
            let stream = stored(&[vec![0; empty], content.to_vec()].concat());
            assert_eq!(Compression::Deflate.expand(&stream, SIZE), expected, "{empty} empty ones");
        }
    }

    #[test]
    fn wrong_checksum_is_damage() {
        let cluster = content(SIZE);
        let mut frame = packed(&cluster);
        assert_ne!(frame[4] & 4, 0, "the frame has a checksum");
        let last = frame.last_mut().unwrap();
        *last ^= 1;
        assert_eq!(Compression::Zstd.expand(&frame, SIZE), Err(Damage::Expansion));
    }
}
