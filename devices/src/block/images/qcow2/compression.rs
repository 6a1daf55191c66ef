//! Compressed clusters. What they say of their own size is not believed: a cluster is all they can become.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::entry::Damage;

/// How the clusters of an image are compressed, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// What the format calls zlib: a deflate stream, without zlib's header and checksum.
    Deflate,
    /// One or more zstd frames.
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

/// Ends when the cluster is full, whether or not the stream does.
fn inflate(input: &[u8], cluster: &mut [u8]) -> bool {
    let mut decompressor = Box::<DecompressorOxide>::default();
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, filled) = decompress(&mut decompressor, input, cluster, 0, flags);
    let is_sound = matches!(
        status,
        TINFLStatus::Done | TINFLStatus::HasMoreOutput | TINFLStatus::FailedCannotMakeProgress
    );
    is_sound && filled == cluster.len()
}

/// Takes frames until the cluster is full. The decoder keeps at most what is left of the cluster and one block more
/// (128 KiB); a new one for each frame, as one that is used again would take memory for whatever window a frame claims.
fn unpack(mut input: &[u8], cluster: &mut [u8]) -> Option<()> {
    let mut rest = cluster;
    while !rest.is_empty() {
        let mut decoder = FrameDecoder::new();
        decoder.reset(&mut input).ok()?;
        let most = BlockDecodingStrategy::UptoBytes(rest.len() + 1);
        // Not finished means that the frame has more than there is room for.
        let is_finished = decoder.decode_blocks(&mut input, most).ok()?;
        let length = decoder.can_collect();
        if !is_finished || length > rest.len() {
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
    }
    Some(())
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
