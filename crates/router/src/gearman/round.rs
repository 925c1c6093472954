//! A request for which one shard after another is asked, until the client has its answer. Nothing else
//! is sent meanwhile.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::decode_response;
use spindle_gearman::wire::{ErrorReply, HEADER_BYTES, PacketType, Response};

use super::channel::Token;
use crate::Shard;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A job.
    Grab,
    /// The job of a unique.
    Unique,
    /// Lines of all shards, joined to one list.
    List,
    /// A job for a function whose queue is moving between shards: a shard that says that the queue is
    /// elsewhere has no job with this unique. `watches`: news of the job will come on the way.
    Submit { watches: bool },
}

/// What becomes of a shard's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// It is a part of the answer.
    Part(Bytes),
    /// This is the answer, or its last part.
    Last(Bytes),
    /// The next shard is asked.
    Next,
    /// The answer cannot be completed.
    Broken,
}

/// A request under way.
pub(super) struct Round {
    pub kind: Kind,
    pub request: Bytes,
    /// Shards that have not been asked.
    left: VecDeque<Shard>,
    /// A shard was asked.
    pub has_begun: bool,
    /// A part of the answer has left.
    has_parts: bool,
    /// A shard's refusal. Another shard may still have what is asked for.
    refusal: Option<Bytes>,
}

impl Round {
    pub fn new(kind: Kind, request: Bytes, shards: impl IntoIterator<Item = Shard>) -> Round {
        let left = shards.into_iter().collect();
        Round { kind, request, left, has_begun: false, has_parts: false, refusal: None }
    }

    /// The shard to ask now.
    pub fn next_shard(&mut self) -> Option<Shard> {
        self.has_begun = true;
        self.left.pop_front()
    }

    /// What becomes of this answer of the shard that was asked.
    pub fn hear(&mut self, token: &Token) -> Heard {
        match self.kind {
            Kind::List => self.hear_line(token),
            Kind::Grab | Kind::Unique => self.hear_packet(token),
            Kind::Submit { .. } if says_other_shard(token) => match self.left.is_empty() {
                false => Heard::Next,
                // This node has not heard yet where the queue is: the client has to ask again.
                true => Heard::Broken,
            },
            Kind::Submit { .. } => Heard::Last(token.bytes().clone()),
        }
    }

    fn hear_packet(&mut self, token: &Token) -> Heard {
        if self.is_found(token) {
            return Heard::Last(token.bytes().clone());
        }
        if token.is(PacketType::Error) {
            self.refusal.get_or_insert_with(|| token.bytes().clone());
        }
        match self.left.is_empty() {
            false => Heard::Next,
            true => Heard::Last(self.refusal.take().unwrap_or_else(|| token.bytes().clone())),
        }
    }

    fn is_found(&self, token: &Token) -> bool {
        use PacketType as P;
        match (self.kind, token) {
            (Kind::Grab, Token::Packet(kind, _)) => {
                matches!(kind, P::JobAssign | P::JobAssignUniq | P::JobAssignAll)
            }
            (Kind::Unique, Token::Packet(P::StatusResUnique, bytes)) => {
                let read = decode_response(&mut BytesMut::from(&bytes[..]), bytes.len());
                matches!(read, Ok(Some(Response::StatusUnique { status, .. })) if status.is_known)
            }
            _ => false,
        }
    }

    /// Lines of a list end in LF, and a refusal in CR LF, which no name in a list has.
    fn hear_line(&mut self, token: &Token) -> Heard {
        match token {
            Token::Line(line) if line.ends_with(b"\r\n") => match self.has_parts {
                false => Heard::Last(line.clone()),
                true => Heard::Broken,
            },
            Token::Line(line) if &line[..] == b".\n" => match self.left.is_empty() {
                false => Heard::Next,
                true => Heard::Last(line.clone()),
            },
            Token::Line(line) => {
                self.has_parts = true;
                Heard::Part(line.clone())
            }
            Token::Packet(..) => Heard::Broken,
        }
    }
}

/// Whether a shard has refused a job because its queue is elsewhere.
pub(super) fn says_other_shard(token: &Token) -> bool {
    let Token::Packet(PacketType::Error, bytes) = token else { return false };
    let code = bytes.get(HEADER_BYTES..).and_then(|said| said.split(|byte| *byte == 0).next());
    code == Some(ErrorReply::OTHER_SHARD.as_bytes())
}

/// The shards, beginning behind the one that had the last job: so no shard's jobs have to wait until the
/// others have none.
pub(super) fn in_turn(mut shards: Vec<Shard>, last: Option<Shard>) -> Vec<Shard> {
    let behind = shards.iter().position(|shard| last.is_none_or(|last| *shard > last));
    shards.rotate_left(behind.unwrap_or(0));
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: PacketType, data: &[u8]) -> Token {
        let mut bytes = b"\0RES".to_vec();
        bytes.extend_from_slice(&kind.number().to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(data);
        Token::Packet(kind, bytes.into())
    }

    fn line(text: &'static str) -> Token {
        Token::Line(Bytes::from_static(text.as_bytes()))
    }

    fn round(kind: Kind, shards: u8) -> Round {
        let mut round = Round::new(kind, Bytes::new(), (0..shards).map(Shard));
        round.next_shard();
        round
    }

    /// What becomes of each answer, with the next shard asked after each.
    fn heard(mut round: Round, tokens: &[Token]) -> Vec<Heard> {
        let mut heard = Vec::new();
        for token in tokens {
            heard.push(round.hear(token));
            if heard.last() == Some(&Heard::Next) {
                round.next_shard().unwrap();
            }
        }
        heard
    }

    #[test]
    fn a_grab_goes_on_until_there_is_a_job_and_a_refusal_counts_when_there_is_none() {
        let (none, refusal) = (packet(PacketType::NoJob, b""), packet(PacketType::Error, b"A\0a"));
        let job = packet(PacketType::JobAssignUniq, b"H:h:1\0f\0u\0x");
        let last = |token: &Token| Heard::Last(token.bytes().clone());
        assert_eq!(
            heard(round(Kind::Grab, 3), &[none.clone(), refusal.clone(), job.clone()]),
            [Heard::Next, Heard::Next, last(&job)]
        );
        assert_eq!(
            heard(round(Kind::Grab, 3), &[refusal.clone(), none.clone(), none.clone()]),
            [Heard::Next, Heard::Next, last(&refusal)]
        );
        assert_eq!(heard(round(Kind::Grab, 1), std::slice::from_ref(&none)), [last(&none)]);
    }

    #[test]
    fn who_knows_the_unique_answers_or_else_the_last() {
        let unknown = packet(PacketType::StatusResUnique, b"u\x000\x000\x000\x000\x000");
        let known = packet(PacketType::StatusResUnique, b"u\x001\x000\x000\x000\x000");
        let last = |token: &Token| Heard::Last(token.bytes().clone());
        let asked = [unknown.clone(), known.clone()];
        assert_eq!(heard(round(Kind::Unique, 3), &asked), [Heard::Next, last(&known)]);
        let asked = [unknown.clone(), unknown.clone()];
        assert_eq!(heard(round(Kind::Unique, 2), &asked), [Heard::Next, last(&unknown)]);
    }

    #[test]
    fn lists_become_one_with_one_end_and_half_a_list_is_none() {
        let part = |text: &'static str| Heard::Part(Bytes::from_static(text.as_bytes()));
        let last = |text: &'static str| Heard::Last(Bytes::from_static(text.as_bytes()));
        let lines = [line("a\t1\n"), line(".\n"), line(".\n"), line("ERR\n"), line(".\n")];
        assert_eq!(
            heard(round(Kind::List, 3), &lines),
            [part("a\t1\n"), Heard::Next, Heard::Next, part("ERR\n"), last(".\n")]
        );
        assert_eq!(heard(round(Kind::List, 3), &[line("ERR NO\r\n")]), [last("ERR NO\r\n")]);
        let lines = [line("a\t1\n"), line(".\n"), line("ERR NO\r\n")];
        assert_eq!(heard(round(Kind::List, 3), &lines)[2], Heard::Broken);
    }

    #[test]
    fn a_job_is_offered_until_one_says_something_else_than_that_it_is_elsewhere() {
        let elsewhere = packet(PacketType::Error, b"OTHER_SHARD\0x");
        let full = packet(PacketType::Error, b"QUEUE_ERROR\0x");
        let created = packet(PacketType::JobCreated, b"H:h:1");
        let last = |token: &Token| Heard::Last(token.bytes().clone());
        let kind = Kind::Submit { watches: false };
        for (end, becomes) in
            [(&full, last(&full)), (&created, last(&created)), (&elsewhere, Heard::Broken)]
        {
            let asked = [elsewhere.clone(), elsewhere.clone(), end.clone()];
            assert_eq!(heard(round(kind, 3), &asked), [Heard::Next, Heard::Next, becomes]);
        }
        assert_eq!(heard(round(kind, 3), std::slice::from_ref(&created)), [last(&created)]);
    }

    #[test]
    fn turns_begin_behind_the_last() {
        let shards = || [0, 2, 3].map(Shard).to_vec();
        assert_eq!(in_turn(shards(), None), [0, 2, 3].map(Shard));
        assert_eq!(in_turn(shards(), Some(Shard(0))), [2, 3, 0].map(Shard));
        assert_eq!(in_turn(shards(), Some(Shard(1))), [2, 3, 0].map(Shard));
        assert_eq!(in_turn(shards(), Some(Shard(3))), [0, 2, 3].map(Shard));
        assert!(in_turn(Vec::new(), Some(Shard(3))).is_empty());
    }
}
