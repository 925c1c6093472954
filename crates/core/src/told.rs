//! What the words of a failure are.

use crate::job::{Cause, JobImage, Origin};
use crate::payload::Type;

impl JobImage {
    /// What the bytes of the last failure's `error` are. The door whose worker failed says so:
    /// LightJQ's workers tell a MessagePack value, all others a text.
    pub fn error_type(&self) -> Type {
        let failed = self.history.iter().rev().find(|attempt| attempt.cause() == Cause::Failed);
        match failed.map(|attempt| attempt.door()) {
            Some(Origin::Lightjq) => Type::Msgpack,
            _ => Type::Bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Attempt;

    #[test]
    fn an_error_is_what_the_door_of_the_last_failure_writes() {
        let attempt = |door: Origin, cause: Cause| Attempt {
            door: door as i32,
            cause: cause as i32,
            ..Attempt::default()
        };
        let mut image = JobImage::default();
        assert_eq!(image.error_type(), Type::Bytes);
        image.history.push(attempt(Origin::Api, Cause::Failed));
        image.history.push(attempt(Origin::Lightjq, Cause::Timeout));
        assert_eq!(image.error_type(), Type::Bytes, "a timeout tells no error");
        image.history.push(attempt(Origin::Lightjq, Cause::Failed));
        image.history.push(attempt(Origin::Api, Cause::Released));
        assert_eq!(image.error_type(), Type::Msgpack);
    }
}
