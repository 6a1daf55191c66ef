//! Images on top of each other.

use std::io;

use super::qcow2::{Image, Place};
use super::read_at::ReadAt;
use super::{ImageError, ImageFormat, MAX_IMAGES, MAX_SIZE};
use crate::block::request::SECTOR;

/// One image of a chain.
enum Layer<S> {
    Raw { source: S, length: u64 },
    Qcow2(Image<S>),
}

/// Images, each of which has what those before it do not have.
pub(super) struct Chain<S> {
    /// The first is the disk's own.
    layers: Vec<Layer<S>>,
}

/// Where a part of the disk is.
pub(super) enum Content<'a, S> {
    Zeroes,
    /// In this file from that offset on.
    File(&'a S, u64),
    /// In memory.
    Memory(&'a [u8]),
}

impl<S: ReadAt> Layer<S> {
    fn size(&self) -> u64 {
        match self {
            Self::Raw { length, .. } => *length,
            Self::Qcow2(image) => image.size(),
        }
    }

    fn source(&self) -> &S {
        match self {
            Self::Raw { source, .. } => source,
            Self::Qcow2(image) => image.source(),
        }
    }

    fn locate(&self, offset: u64, length: u64) -> io::Result<(Place, u64)> {
        // Whatever is on top of it may be larger.
        let Some(left) = self.size().checked_sub(offset).filter(|left| *left > 0) else {
            return Ok((Place::Zeroes, length));
        };
        let length = length.min(left);
        match self {
            Self::Raw { .. } => Ok((Place::File(offset), length)),
            Self::Qcow2(image) => image.locate(offset, length),
        }
    }
}

impl<S: ReadAt> Chain<S> {
    /// The disk that the first of `images` is, each with its length and format. Each is the backing file of the one
    /// before it, and which file that is says this list alone.
    pub(super) fn open(images: Vec<(S, u64, ImageFormat)>) -> Result<Self, ImageError> {
        let count = images.len();
        if count == 0 || count > MAX_IMAGES {
            return Err(ImageError::Count(count));
        }
        let open = |(number, (source, length, format))| {
            let layer = match format {
                ImageFormat::Raw => Layer::Raw { source, length },
                ImageFormat::Qcow2 => Layer::Qcow2(
                    Image::open(source, length)
                        .map_err(|source| ImageError::Qcow2 { number, source })?,
                ),
            };
            check_backing(&layer, number, number + 1 < count)?;
            Ok(layer)
        };
        let layers = images.into_iter().enumerate().map(open).collect::<Result<_, _>>()?;
        let chain = Self { layers };
        match chain.size() {
            512..=MAX_SIZE => Ok(chain),
            size => Err(ImageError::Size(size)),
        }
    }

    /// Bytes of the disk: whole sectors, as what is behind the last of them cannot be asked for.
    pub(super) fn size(&self) -> u64 {
        let size = self.layers.first().map_or(0, Layer::size);
        size - size % SECTOR
    }

    /// Where the `length` bytes from `offset` on are: gives what is found there to `take`, and returns how many of them
    /// are at the same place: one at least, if any were asked for.
    pub(super) fn locate<T>(
        &self,
        offset: u64,
        length: u64,
        take: impl FnOnce(Content<'_, S>, u64) -> T,
    ) -> io::Result<T> {
        let mut length = length;
        for layer in &self.layers {
            let (place, there) = layer.locate(offset, length)?;
            length = there;
            match place {
                Place::Unallocated => {}
                Place::Zeroes => break,
                Place::File(at) => return Ok(take(Content::File(layer.source(), at), length)),
                Place::Memory(cluster, start) => {
                    let bytes = cluster.get(start..).unwrap_or(&[]);
                    return Ok(take(Content::Memory(bytes), length));
                }
            }
        }
        Ok(take(Content::Zeroes, length))
    }

    /// Fills `bytes` from `offset` on.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let wanted = rest.len() as u64;
            let filled = self.locate(offset, wanted, |content, length| {
                let length = usize::try_from(length).unwrap_or(rest.len()).min(rest.len());
                let part = &mut rest[..length];
                match content {
                    Content::Zeroes => part.fill(0),
                    Content::File(source, at) => source.fill(at, part)?,
                    Content::Memory(bytes) => part.copy_from_slice(&bytes[..length]),
                }
                io::Result::Ok(length)
            })??;
            offset += filled as u64;
            rest = &mut rest[filled..];
        }
        Ok(())
    }

    /// Whether all of a range reads as zeroes, as far as the tables say so.
    pub(super) fn is_zero(&self, offset: u64, length: u64) -> io::Result<bool> {
        let mut done = 0;
        while done < length {
            let zeroes = self.locate(offset + done, length - done, |content, length| {
                matches!(content, Content::Zeroes).then_some(length)
            })?;
            match zeroes {
                Some(length) => done += length,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A list that is too short or too long would give the guest another disk than was meant.
fn check_backing<S: ReadAt>(
    layer: &Layer<S>,
    number: usize,
    has_next: bool,
) -> Result<(), ImageError> {
    let named = match layer {
        Layer::Raw { .. } => None,
        Layer::Qcow2(image) => image.backing(),
    };
    match (named, has_next) {
        (Some(name), false) => {
            Err(ImageError::BackingMissing { number, name: name.escape_debug().to_string() })
        }
        (None, true) => Err(ImageError::BackingUnused { number }),
        _ => Ok(()),
    }
}
