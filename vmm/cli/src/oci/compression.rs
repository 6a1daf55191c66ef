//! Layers as streams of tar, whatever they are compressed by. Media types do not always tell, and the first bytes do.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Large enough that a read of a layer is not many system calls.
const BUFFER: usize = 256 << 10;

/// The largest window of a frame: what `zstd --ultra --long=27` makes. A hostile one would have us allocate more.
const MAX_WINDOW: u64 = 128 << 20;

/// A layer, decompressed. Dropping it leaves the rest of `inner` unread.
pub(super) enum Plain<R: Read> {
    Tar(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<Zstd<BufReader<R>>>),
}

impl<R: Read> Plain<R> {
    /// Looks at the first bytes.
    pub(super) fn new(inner: R) -> io::Result<Self> {
        let mut inner = BufReader::with_capacity(BUFFER, inner);
        let first = inner.fill_buf()?;
        Ok(match first {
            [0x1f, 0x8b, ..] => Self::Gzip(Box::new(MultiGzDecoder::new(inner))),
            // The last one is a frame to be skipped, which may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Self::Zstd(Box::new(Zstd::new(inner)))
            }
            _ => Self::Tar(inner),
        })
    }

    /// What was compressed.
    pub(super) fn into_inner(self) -> R {
        match self {
            Self::Tar(inner) => inner.into_inner(),
            Self::Gzip(decoder) => decoder.into_inner().into_inner(),
            Self::Zstd(decoder) => decoder.source.into_inner(),
        }
    }
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tar(inner) => inner.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// All frames of a zstd stream, one after the other, but those that are to be skipped.
pub(super) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { source, decoder, in_frame: false }
    }

    /// Begins the next frame. `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin()? {
                return Ok(0);
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.decoder.is_finished() {
                self.in_frame = false;
                continue;
            }
            let strategy = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder.decode_blocks(&mut self.source, strategy).map_err(io::Error::other)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Plain::new(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_gzip_and_zstd_are_told_apart_also_in_several_parts() {
        let content = b"some content ".repeat(10_000);
        assert_eq!(plain(&content).unwrap(), content);
        assert_eq!(
            plain(&[gzip(&content[..100]), gzip(&content[100..])].concat()).unwrap(),
            content
        );
        let zstd = |bytes| compress_to_vec(bytes, CompressionLevel::Fastest);
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let stream =
            [&skipped[..], &zstd(&content[..100]), &skipped, &zstd(&content[100..]), &skipped]
                .concat();
        assert_eq!(plain(&stream).unwrap(), content);
        assert_eq!(plain(b"").unwrap(), b"");
    }

    #[test]
    fn cut_streams_are_errors() {
        let content = b"some content ".repeat(10_000);
        let gzip = gzip(&content);
        assert!(plain(&gzip[..gzip.len() / 2]).is_err());
        let zstd = compress_to_vec(&content[..], CompressionLevel::Fastest);
        assert!(plain(&zstd[..zstd.len() / 2]).is_err());
        assert!(plain(&[0x50, 0x2a, 0x4d, 0x18, 30, 0, 0, 0, 1]).is_err());
    }
}
