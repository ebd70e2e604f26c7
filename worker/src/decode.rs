//! Content codings (RFC 9110, section 8.4): from the bytes on the wire to the document, within limits.
//!
//! Works on a whole body in memory and uses the processor, so it belongs on a blocking thread; how many bodies are
//! decoded at once, and with that the memory of the decoders' windows, is bounded by the caller. The parser handles
//! charsets.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Instant;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::header::{self, HeaderMap};

use crate::watch;

/// One content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip`
    Gzip,
    /// `deflate`: zlib's format as the RFC says, or raw deflate as some servers send it.
    Deflate,
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
}

/// How much may come out.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes of the document, and of the data between two codings.
    pub max_bytes: usize,
    /// Decoded bytes over bytes on the wire, judged beyond [`RATIO_FREE_BYTES`].
    pub max_ratio: u32,
    /// When decoding ends, whatever has come out by then. `None`: never.
    pub deadline: Option<Instant>,
}

/// Up to here a body may be as well compressed as it likes.
pub const RATIO_FREE_BYTES: usize = 1_000_000;

/// Why a body could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A coding that we did not accept.
    #[error("the content coding '{0}' is unknown")]
    Unknown(String),
    /// More codings on top of each other than any honest server uses.
    #[error("more than {MAX_CODINGS} content codings on top of each other")]
    TooMany,
    /// The coded bytes end too early.
    #[error("the body ends inside its content coding")]
    Truncated,
    /// The coded bytes are wrong.
    #[error("the body does not follow its content coding: {0}")]
    Corrupt(String),
    /// More than [`DecodeLimits::max_bytes`].
    #[error("the decoded body has more than {0} bytes")]
    TooLarge(usize),
    /// Not decoded by [`DecodeLimits::deadline`].
    #[error("decoding the body takes too long")]
    Late,
    /// More than [`DecodeLimits::max_ratio`].
    #[error("the body decodes to more than {0} times its size")]
    Bomb(u32),
}

const MAX_CODINGS: usize = 3;

/// What an answer says of its codings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings {
    /// The known ones, in the order in which they were applied.
    pub known: Vec<Coding>,
    /// The first that is none. Servers put charsets there, and `none`; the body is then read as if it were not named.
    pub unknown: Option<String>,
}

/// Reads the codings of an answer.
pub fn codings(headers: &HeaderMap) -> Result<Codings, DecodeError> {
    let (mut codings, mut unknown) = (Vec::new(), None);
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let list = String::from_utf8_lossy(value.as_bytes());
        for name in list.split(',').map(|name| name.trim().to_ascii_lowercase()) {
            codings.extend(match name.as_str() {
                "" | "identity" => None,
                "gzip" | "x-gzip" => Some(Coding::Gzip),
                "deflate" => Some(Coding::Deflate),
                "br" => Some(Coding::Brotli),
                "zstd" => Some(Coding::Zstd),
                _ => {
                    unknown.get_or_insert_with(|| name.chars().take(40).collect());
                    None
                }
            });
        }
    }
    if codings.len() > MAX_CODINGS { Err(DecodeError::TooMany) } else { Ok(Codings { known: codings, unknown }) }
}

/// Undoes the codings, the last one first.
pub fn decode(wire: Vec<u8>, codings: &[Coding], limits: DecodeLimits) -> Result<Vec<u8>, DecodeError> {
    if codings.is_empty() {
        return if wire.len() > limits.max_bytes { Err(DecodeError::TooLarge(limits.max_bytes)) } else { Ok(wire) };
    }
    if wire.is_empty() {
        return Ok(wire); // servers that code by rote mark empty bodies too
    }
    let mut document = Vec::new();
    let mut reader: Box<dyn BufRead + '_> = Box::new(wire.as_slice());
    for coding in codings.iter().rev() {
        reader = Box::new(BufReader::new(Capped::new(coding.reader(reader)?, limits)));
    }
    loop {
        let chunk = reader.fill_buf().map_err(|error| DecodeError::from_io(&error, limits))?;
        if chunk.is_empty() {
            return Ok(document);
        }
        let read = chunk.len();
        if document.len() + read > document.capacity() {
            // grows by doubling, but never far beyond what it may hold in the end
            let capacity = (2 * document.capacity()).min(limits.max_bytes).max(document.len() + read);
            document.reserve_exact(capacity - document.len());
        }
        document.extend_from_slice(chunk);
        reader.consume(read);
        let max_ratio = usize::try_from(limits.max_ratio).unwrap_or(usize::MAX);
        if document.len() > RATIO_FREE_BYTES.max(wire.len().saturating_mul(max_ratio)) {
            return Err(DecodeError::Bomb(limits.max_ratio));
        }
    }
}

impl Coding {
    /// Window of zstd in bits: the 8 MB that RFC 9659 allows for HTTP.
    const ZSTD_WINDOW_LOG: u32 = 23;

    fn reader<'a>(self, mut inner: Box<dyn BufRead + 'a>) -> Result<Box<dyn Read + 'a>, DecodeError> {
        let corrupt = |error: io::Error| DecodeError::Corrupt(error.to_string());
        Ok(match self {
            Coding::Gzip => Box::new(Gzip::Member(GzDecoder::new(inner), 0)),
            Coding::Deflate => {
                let zlib = looks_like_zlib(inner.fill_buf().map_err(corrupt)?);
                Box::new(Deflate { inner, state: Decompress::new(zlib), ended: false })
            }
            Coding::Brotli => Box::new(Brotli::new(inner)),
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(inner).map_err(corrupt)?;
                decoder.window_log_max(Self::ZSTD_WINDOW_LOG).map_err(corrupt)?;
                Box::new(decoder)
            }
        })
    }
}

/// RFC 1950: compression method 8, and the first two bytes are a multiple of 31.
fn looks_like_zlib(start: &[u8]) -> bool {
    match start {
        [first, second, ..] => first & 0x0f == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31),
        _ => true,
    }
}

impl DecodeError {
    fn from_io(error: &io::Error, limits: DecodeLimits) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => DecodeError::TooLarge(limits.max_bytes),
            io::ErrorKind::UnexpectedEof => DecodeError::Truncated,
            io::ErrorKind::TimedOut => DecodeError::Late,
            _ => DecodeError::Corrupt(error.to_string()),
        }
    }
}

/// Ends with [`io::ErrorKind::FileTooLarge`] after that many bytes, and with [`io::ErrorKind::TimedOut`] at the deadline. Every
/// coding has one, because one coding inside of another can be a bomb that leaves nothing behind but lost time.
struct Capped<R> {
    inner: R,
    left: usize,
    deadline: Option<Instant>,
}

impl<R> Capped<R> {
    fn new(inner: R, limits: DecodeLimits) -> Self {
        Capped { inner, left: limits.max_bytes, deadline: limits.deadline }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Once for each buffer of 8 KB.
        if watch::has_passed(self.deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

/// Members one after the other (RFC 1952, section 2.2). What follows the last one and is none itself is ignored, as
/// browsers do: some servers pad their answers.
///
/// Each member has a separate decoder: half a million of empty members, which fit into 10 MB, would be expensive.
enum Gzip<R> {
    /// A member, and how many came before it.
    Member(GzDecoder<R>, u32),
    Ended,
}

/// Members of one body. Programs that write several put 64 KB into each.
const MAX_MEMBERS: u32 = 20_000;

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Gzip::Member(member, _) = self else { return Ok(0) };
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Gzip::Member(member, before) = std::mem::replace(self, Gzip::Ended) else { return Ok(0) };
            let mut rest = member.into_inner();
            if rest.fill_buf()?.first() == Some(&0x1f) {
                if before + 1 == MAX_MEMBERS {
                    return Err(io::Error::other(format!("it has more than {MAX_MEMBERS} gzip members")));
                }
                *self = Gzip::Member(GzDecoder::new(rest), before + 1);
            }
        }
    }
}

/// zlib or raw deflate. flate2's own readers take the end of the input for the end of the stream.
struct Deflate<R> {
    inner: R,
    state: Decompress,
    ended: bool,
}

impl<R: BufRead> Read for Deflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let input = self.inner.fill_buf()?;
            let exhausted = input.is_empty();
            let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(input, buffer, FlushDecompress::None).map_err(io::Error::other)?;
            let consumed = usize::try_from(self.state.total_in() - before_in).map_err(io::Error::other)?;
            let written = usize::try_from(self.state.total_out() - before_out).map_err(io::Error::other)?;
            self.inner.consume(consumed);
            self.ended = status == Status::StreamEnd;
            if written > 0 || self.ended {
                return Ok(written);
            }
            if exhausted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Brotli by RFC 7932. The crate's own reader also takes the format's extension with windows of up to 1 GB, which no
/// server may send, and does not distinguish a cut stream from a corrupt one.
struct Brotli<R> {
    inner: R,
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    ended: bool,
}

impl<R: BufRead> Brotli<R> {
    fn new(inner: R) -> Self {
        let alloc = StandardAlloc::default;
        Brotli { inner, state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())), ended: false }
    }
}

impl<R: BufRead> Read for Brotli<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let input = self.inner.fill_buf()?;
            let exhausted = input.is_empty();
            let (mut available_in, mut consumed) = (input.len(), 0);
            let (mut available_out, mut written, mut total) = (buffer.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut available_in,
                &mut consumed,
                input,
                &mut available_out,
                &mut written,
                buffer,
                &mut total,
                &mut self.state,
            );
            self.inner.consume(consumed);
            self.ended = matches!(result, BrotliResult::ResultSuccess);
            match result {
                BrotliResult::ResultFailure => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "corrupt brotli stream"));
                }
                BrotliResult::NeedsMoreInput if exhausted && written == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                _ if written > 0 || self.ended => return Ok(written),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: DecodeLimits = DecodeLimits { max_bytes: 20_000_000, max_ratio: 200, deadline: None };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn brotli(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
        encoder.write_all(bytes).unwrap();
        encoder.into_inner()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).unwrap()
    }

    type Encoder = fn(&[u8]) -> Vec<u8>;

    const ENCODERS: [(Coding, Encoder); 5] = [
        (Coding::Gzip, gzip),
        (Coding::Deflate, zlib),
        (Coding::Deflate, raw_deflate),
        (Coding::Brotli, brotli),
        (Coding::Zstd, zstd),
    ];

    fn text() -> Vec<u8> {
        (0..20_000).flat_map(|n: u32| format!("<item>{n}</item>").into_bytes()).collect()
    }

    fn codings_of(values: &[&str]) -> Result<Vec<Coding>, DecodeError> {
        let headers = values.iter().map(|value| (header::CONTENT_ENCODING, value.parse().unwrap())).collect();
        codings(&headers).map(|codings| codings.known)
    }

    #[test]
    fn p33_every_coding_that_we_ask_for_is_decoded() {
        for (coding, encode) in ENCODERS {
            for document in [text(), b"x".to_vec(), Vec::new()] {
                assert_eq!(decode(encode(&document), &[coding], LIMITS), Ok(document), "{coding:?}");
            }
            assert_eq!(decode(Vec::new(), &[coding], LIMITS), Ok(Vec::new()), "{coding:?} of nothing at all");
        }
        assert_eq!(decode(text(), &[], LIMITS), Ok(text()));
    }

    #[test]
    fn codings_on_top_of_each_other_are_undone_in_reverse() {
        assert_eq!(codings_of(&["gzip, BR", "x-gzip"]), Ok(vec![Coding::Gzip, Coding::Brotli, Coding::Gzip]));
        assert_eq!(codings_of(&["identity", "", "deflate,"]), Ok(vec![Coding::Deflate]));
        assert_eq!(codings_of(&["gzip, utf-8"]), Ok(vec![Coding::Gzip]));
        let charset = [(header::CONTENT_ENCODING, "utf-8, none".parse().unwrap())].into_iter().collect();
        assert_eq!(codings(&charset), Ok(Codings { known: Vec::new(), unknown: Some("utf-8".to_owned()) }));
        assert_eq!(codings_of(&["gzip, gzip, gzip, gzip"]), Err(DecodeError::TooMany));
        let wire = gzip(&brotli(&zstd(&text())));
        assert_eq!(decode(wire, &[Coding::Zstd, Coding::Brotli, Coding::Gzip], LIMITS), Ok(text()));
    }

    #[test]
    fn armour_a_coded_body_that_ends_early_is_truncated() {
        for (coding, encode) in ENCODERS {
            let whole = encode(&text());
            for keep in [1, 3, whole.len() / 2, whole.len() - 1] {
                let result = decode(whole[..keep].to_vec(), &[coding], LIMITS);
                assert_eq!(result, Err(DecodeError::Truncated), "{coding:?} cut to {keep} of {}", whole.len());
            }
        }
    }

    #[test]
    fn armour_wrong_bytes_are_corrupt() {
        for (coding, encode) in ENCODERS {
            let plain = decode(b"<rss version=\"2.0\"></rss>".to_vec(), &[coding], LIMITS);
            assert!(matches!(plain, Err(DecodeError::Corrupt(_) | DecodeError::Truncated)), "{coding:?}: {plain:?}");
            let mut flipped = encode(&text());
            let middle = flipped.len() / 2;
            flipped[middle..middle + 8].fill(0xff);
            assert_ne!(decode(flipped, &[coding], LIMITS), Ok(text()), "{coding:?}");
        }
        let mut wrong_sum = gzip(&text());
        let sum = wrong_sum.len() - 8;
        wrong_sum[sum] ^= 1;
        assert!(matches!(decode(wrong_sum, &[Coding::Gzip], LIMITS), Err(DecodeError::Corrupt(_))));
    }

    #[test]
    fn gzip_members_add_up_and_padding_is_ignored() {
        let members = [gzip(b"one, "), gzip(b""), gzip(b"two")].concat();
        assert_eq!(decode(members.clone(), &[Coding::Gzip], LIMITS), Ok(b"one, two".to_vec()));
        assert_eq!(decode([members.as_slice(), &[0; 512]].concat(), &[Coding::Gzip], LIMITS), Ok(b"one, two".to_vec()));
    }

    #[test]
    fn armour_a_bomb_ends_at_the_limit() {
        let zeros = vec![0; 1_500_000];
        let tight = DecodeLimits { max_bytes: 1_499_999, max_ratio: u32::MAX, deadline: None };
        let fits = DecodeLimits { max_bytes: 1_500_000, max_ratio: u32::MAX, deadline: None };
        for (coding, encode) in ENCODERS {
            let bomb = encode(&zeros);
            assert_eq!(decode(bomb.clone(), &[coding], LIMITS), Err(DecodeError::Bomb(200)), "{coding:?}");
            assert_eq!(decode(bomb.clone(), &[coding], tight), Err(DecodeError::TooLarge(1_499_999)), "{coding:?}");
            assert_eq!(decode(bomb, &[coding], fits).map(|body| body.len()), Ok(1_500_000), "{coding:?}");
        }
        assert_eq!(decode(zeros, &[], tight), Err(DecodeError::TooLarge(1_499_999)));
    }

    #[test]
    fn armour_a_bomb_between_two_codings_is_caught_although_nothing_comes_out() {
        let empty_members = gzip(b"").repeat(20_000);
        let wire = zstd(&empty_members);
        assert!(wire.len() < 10_000);
        let limits = DecodeLimits { max_bytes: 300_000, max_ratio: 200, deadline: None };
        assert_eq!(decode(wire, &[Coding::Gzip, Coding::Zstd], limits), Err(DecodeError::TooLarge(300_000)));
    }

    #[test]
    fn armour_a_body_of_empty_members_is_refused() {
        let members = |count: usize| decode(gzip(b"").repeat(count), &[Coding::Gzip], LIMITS);
        assert_eq!(members(MAX_MEMBERS as usize), Ok(Vec::new()));
        assert!(matches!(members(MAX_MEMBERS as usize + 1), Err(DecodeError::Corrupt(_))));
    }

    #[test]
    fn armour_windows_larger_than_the_web_allows_are_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&text()).unwrap();
        let wire = encoder.finish().unwrap();
        assert!(matches!(decode(wire, &[Coding::Zstd], LIMITS), Err(DecodeError::Corrupt(_))));

        let parameters =
            brotli::enc::BrotliEncoderParams { large_window: true, lgwin: 28, quality: 1, ..Default::default() };
        let mut wire = Vec::new();
        brotli::BrotliCompress(&mut text().as_slice(), &mut wire, &parameters).unwrap();
        assert!(matches!(decode(wire, &[Coding::Brotli], LIMITS), Err(DecodeError::Corrupt(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_end_in_a_document_or_an_error(wire in proptest::collection::vec(any::<u8>(), 0..2000), layers in 1..4usize) {
            for (coding, _) in ENCODERS {
                let _ = decode(wire.clone(), &vec![coding; layers], LIMITS);
            }
        }

        #[test]
        fn every_document_comes_back(document in proptest::collection::vec(any::<u8>(), 0..5000)) {
            for (coding, encode) in ENCODERS {
                prop_assert_eq!(&decode(encode(&document), &[coding], LIMITS).unwrap(), &document);
            }
        }
    }
}
