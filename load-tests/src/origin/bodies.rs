//! Bodies beyond a good feed: content codings, and documents that hurt careless clients.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// `gzip`.
    Gzip,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
    /// `deflate` as the RFC means it: zlib's wrapping.
    Deflate,
    /// `deflate` as some servers mean it: without any wrapping.
    RawDeflate,
}

impl Coding {
    /// Its name in `Content-Encoding` and `Accept-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Deflate | Coding::RawDeflate => "deflate",
        }
    }

    /// Whether an `Accept-Encoding` value names it without forbidding it (`q=0`).
    pub fn accepted_by(self, accept_encoding: &str) -> bool {
        accept_encoding.split(',').any(|member| {
            let mut parts = member.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(self.name()));
            let forbidden = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)));
            named && !forbidden
        })
    }

    /// Bytes in this coding.
    ///
    /// # Errors
    /// Only if the encoder itself fails; none of them does on memory.
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
            Coding::Brotli => {
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

/// An RSS feed that is nothing but `<media:group>` nested so deep (900 makes 24 KB): small, well-formed, and the death
/// of a parser that recurses.
pub fn nested(depth: usize) -> Vec<u8> {
    let head = "<?xml version=\"1.0\"?><rss version=\"2.0\" xmlns:media=\"http://search.yahoo.com/mrss/\"><channel>\
                <title>Nested</title><item><title>Deep</title>";
    let tail = "</item></channel></rss>";
    [head, &"<media:group>".repeat(depth), &"</media:group>".repeat(depth), tail].concat().into_bytes()
}

/// A web page where a feed was expected.
pub fn html_page() -> Vec<u8> {
    b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body><p>Nothing to subscribe to<br></body></html>\n"
        .to_vec()
}

/// Bytes that are nothing: no text, no known format; the same ones each time.
pub fn garbage(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|number| super::mix(number).to_le_bytes()[0]).collect()
}
