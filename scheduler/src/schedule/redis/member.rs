//! A feed's name in the sorted sets: its id in base 36. Six characters plus Redis' two bytes of overhead fill the
//! smallest memory block, so that two billion feeds cost eight bytes each.

use common::url::FeedId;
use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};

/// The name of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member(pub(super) FeedId);

const BASE: u8 = 36;
/// The length of 64 bits in base 36, with a sign.
const LONGEST: usize = 14;

impl Member {
    /// Writes the name at the end of the buffer and returns where it starts.
    fn print(self, buffer: &mut [u8; LONGEST]) -> usize {
        let mut rest = self.0.0.unsigned_abs();
        let mut at = buffer.len();
        loop {
            at -= 1;
            buffer[at] = digit(u8::try_from(rest % u64::from(BASE)).unwrap_or_default());
            rest /= u64::from(BASE);
            if rest == 0 {
                break;
            }
        }
        if self.0.0 < 0 {
            at -= 1;
            buffer[at] = b'-';
        }
        at
    }
}

fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

impl ToRedisArgs for Member {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut buffer = [0; LONGEST];
        let begin = self.print(&mut buffer);
        out.write_arg(&buffer[begin..]);
    }
}

impl FromRedisValue for Member {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::BulkString(name) = &value else { return Err(format!("{value:?} is not a feed").into()) };
        let number = std::str::from_utf8(name).ok().and_then(|name| i64::from_str_radix(name, BASE.into()).ok());
        number.map(|number| Member(FeedId(number))).ok_or_else(|| format!("{value:?} names no feed").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_and_comes_back_and_two_billion_names_have_six_characters() {
        for number in [0, 1, 9, 10, 35, 36, 2_500_000, 2_176_782_335, i64::MAX, i64::MIN, -1] {
            let [name] = &Member(FeedId(number)).to_redis_args()[..] else { panic!("not one argument") };
            assert!(name.len() <= 6 || !(0..2_176_782_336).contains(&number), "{number}");
            let back = Member::from_redis_value(Value::BulkString(name.clone())).unwrap();
            assert_eq!(back, Member(FeedId(number)));
        }
        assert!(Member::from_redis_value(Value::BulkString(b"h:80".to_vec())).is_err());
    }
}
