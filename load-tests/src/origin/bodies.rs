//! Special bodies: content codings, and documents that harm careless clients.

use std::io::{self, Write as _};

use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use flate2::{Compress, Compression, Crc, FlushCompress};

use super::mix::mix;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// No coding.
    Identity,
    /// `gzip`.
    Gzip,
    /// `br`.
    Br,
    /// `zstd`.
    Zstd,
    /// `deflate` as in the RFC: with zlib's wrapper.
    Deflate,
    /// `deflate` as some servers send it: without a wrapper.
    RawDeflate,
}

impl Coding {
    /// Returns its name in `Content-Encoding` and `Accept-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Br => "br",
            Coding::Zstd => "zstd",
            Coding::Deflate | Coding::RawDeflate => "deflate",
        }
    }

    /// Returns whether an `Accept-Encoding` value names it without forbidding it (`q=0`).
    pub fn accepted_by(self, accept_encoding: &str) -> bool {
        accept_encoding.split(',').any(|member| {
            let mut parts = member.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(self.name()));
            let forbidden = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)));
            named && !forbidden
        })
    }

    /// Encodes bytes.
    ///
    /// # Errors
    /// If the encoder fails, which does not happen when writing to memory.
    pub fn encode(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Coding::Identity => Ok(bytes.to_vec()),
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Coding::RawDeflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Coding::Br => {
                let mut encoded = Vec::new();
                let mut encoder = brotli::CompressorWriter::new(&mut encoded, 4096, 1, 20);
                encoder.write_all(bytes)?;
                drop(encoder);
                Ok(encoded)
            }
            Coding::Zstd => zstd::bulk::compress(bytes, 1),
        }
    }
}

/// Returns an RSS feed that consists of deeply nested `<media:group>` elements (900 levels are 24 KB): small,
/// well-formed, and fatal to a recursive parser.
pub fn nested(depth: usize) -> Vec<u8> {
    let head = "<?xml version=\"1.0\"?><rss version=\"2.0\" xmlns:media=\"http://search.yahoo.com/mrss/\"><channel>\
                <title>Nested</title><item><title>Deep</title>";
    let tail = "</item></channel></rss>";
    [head, &"<media:group>".repeat(depth), &"</media:group>".repeat(depth), tail].concat().into_bytes()
}

/// Returns a web page where a feed was expected.
pub fn html_page() -> Vec<u8> {
    b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body><p>Nothing to subscribe to<br></body></html>\n"
        .to_vec()
}

/// Returns bytes in no known format; deterministic.
pub fn garbage(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|number| mix(number).to_le_bytes()[0]).collect()
}

/// Returns a decompression bomb: zero bytes in this coding that expand to `mebibytes` MiB. Cheap to create at any size,
/// because one part is encoded and repeated.
///
/// # Errors
/// If the encoder fails, which does not happen when writing to memory.
pub fn bomb(coding: Coding, mebibytes: u32) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(vec![0; mebibytes as usize * MIB.len()]),
        Coding::Gzip => {
            let (mut one, mut all) = (Crc::new(), Crc::new());
            one.update(MIB);
            (0..mebibytes).for_each(|_| all.combine(&one));
            let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
            let trailer = [all.sum().to_le_bytes(), mebibytes.wrapping_shl(20).to_le_bytes()].concat();
            Ok([&head, &*deflated_zeros(mebibytes)?, &*trailer].concat())
        }
        Coding::Deflate => {
            // Adler-32 of zeros: the low sum stays 1, the high sum counts the bytes.
            let bytes = u64::from(mebibytes) << 20;
            let adler = u32::try_from(bytes % 65_521).unwrap_or_default() << 16 | 1;
            Ok([&[0x78, 0x01], &*deflated_zeros(mebibytes)?, &adler.to_be_bytes()].concat())
        }
        Coding::RawDeflate => deflated_zeros(mebibytes),
        Coding::Br => brotli_zeros(mebibytes),
        Coding::Zstd => Ok(zstd_zeros(mebibytes)),
    }
}

const MIB: &[u8] = &[0; 1 << 20];

/// Uses a full flush, which ends a part at a byte boundary and resets the window, so that the part can be repeated.
fn deflated_zeros(mebibytes: u32) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(64 * 1024);
    Compress::new(Compression::fast(), false).compress_vec(MIB, &mut part, FlushCompress::Full)?;
    let empty_last_block = [1, 0, 0, 0xff, 0xff];
    Ok([part.repeat(mebibytes as usize), empty_last_block.to_vec()].concat())
}

/// After its second part the encoder returns to an earlier state, so that the second part can be repeated.
fn brotli_zeros(mebibytes: u32) -> io::Result<Vec<u8>> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 20);
    let mut ends = Vec::new();
    for _ in 0..2 {
        encoder.write_all(MIB)?;
        encoder.flush()?;
        ends.push(encoder.get_ref().len());
    }
    let encoded = encoder.into_inner();
    let (first, second, last) = (&encoded[..ends[0]], &encoded[ends[0]..ends[1]], &encoded[ends[1]..]);
    Ok([first, &second.repeat((mebibytes as usize).saturating_sub(1)), last].concat())
}

/// Returns one frame with a 128 KiB window, made of blocks that encode 128 KiB of zeros in four bytes.
fn zstd_zeros(mebibytes: u32) -> Vec<u8> {
    let block = |last: u32| -> [u8; 4] {
        let run_length = 1 << 1;
        let [a, b, c, _] = (last | run_length | (128 * 1024) << 3).to_le_bytes();
        [a, b, c, 0]
    };
    let blocks = mebibytes as usize * 8;
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    [&head, &*block(0).repeat(blocks.saturating_sub(1)), &block(1)].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const ALL: [Coding; 6] =
        [Coding::Identity, Coding::Gzip, Coding::Br, Coding::Zstd, Coding::Deflate, Coding::RawDeflate];

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Identity => plain.extend_from_slice(bytes),
            Coding::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap()),
            Coding::Deflate => drop(flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut plain).unwrap()),
            Coding::RawDeflate => drop(flate2::read::DeflateDecoder::new(bytes).read_to_end(&mut plain).unwrap()),
            Coding::Br => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain).unwrap()),
            Coding::Zstd => plain = zstd::stream::decode_all(bytes).unwrap(),
        }
        plain
    }

    #[test]
    fn what_is_encoded_comes_back_equal_in_every_coding() {
        let text = b"some text, some text, some more text".repeat(100);
        for coding in ALL {
            assert_eq!(decoded(coding, &coding.encode(&text).unwrap()), text, "{coding:?}");
        }
    }

    #[test]
    fn a_bomb_is_valid_small_and_unfolds_to_the_size_that_was_asked_for() {
        for coding in &ALL[1..] {
            let bomb = bomb(*coding, 5).unwrap();
            assert!(bomb.len() < 40_000, "{coding:?}: {}", bomb.len());
            let plain = decoded(*coding, &bomb);
            assert_eq!(plain.len(), 5 << 20, "{coding:?}");
            assert!(plain.iter().all(|byte| *byte == 0), "{coding:?}");
        }
    }

    #[test]
    fn a_coding_is_accepted_when_named_unless_its_weight_is_zero() {
        assert!(Coding::Gzip.accepted_by("br, GZIP;q=0.5"));
        assert!(!Coding::Gzip.accepted_by("br, gzip; q=0"));
        assert!(!Coding::Gzip.accepted_by("x-gzip"));
        assert!(Coding::RawDeflate.accepted_by("deflate"));
    }

    #[test]
    fn the_nested_feed_is_as_small_as_promised() {
        assert!(nested(900).len() < 30_000);
    }
}
