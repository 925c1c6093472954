//! The header of a binary packet.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Magic, type and length.
pub const HEADER_BYTES: usize = 12;

/// The longest function name, by the protocol. Spindle's queue names have the same limit.
pub const FUNCTION_BYTES_MAX: usize = 512;

/// The longest unique, by the protocol; a reducer's name has the same limit in gearmand.
pub const UNIQUE_BYTES_MAX: usize = 64;

/// The longest handle that is accepted. Handles given out are at least one byte shorter, because C
/// clients keep them in this many bytes with a NUL at the end.
pub const HANDLE_BYTES_MAX: usize = 64;

/// The client id of a connection is kept up to this length (recorded: gearmand keeps as much).
pub const CLIENT_ID_BYTES_MAX: usize = 127;

/// The first four bytes of what a client or worker sends.
pub(super) const REQUEST_MAGIC: [u8; 4] = *b"\0REQ";

/// The first four bytes of what a server sends.
pub(super) const RESPONSE_MAGIC: [u8; 4] = *b"\0RES";

macro_rules! packet_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a packet is, by the numbers of the published protocol.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        #[expect(missing_docs, reason = "the names are the protocol's own, and all they say")]
        pub enum PacketType {
            $($(#[$doc])* $name = $number,)*
        }

        impl PacketType {
            /// All of them, by number.
            pub const ALL: &[PacketType] = &[$(PacketType::$name,)*];

            /// The type of this number, if the protocol has it.
            #[must_use]
            pub fn from_number(number: u32) -> Option<PacketType> {
                match number {
                    $($number => Some(PacketType::$name),)*
                    _ => None,
                }
            }
        }
    };
}

packet_types! {
    CanDo = 1,
    CantDo = 2,
    ResetAbilities = 3,
    PreSleep = 4,
    /// Has a number and no use.
    Unused = 5,
    Noop = 6,
    SubmitJob = 7,
    JobCreated = 8,
    GrabJob = 9,
    NoJob = 10,
    JobAssign = 11,
    WorkStatus = 12,
    WorkComplete = 13,
    WorkFail = 14,
    GetStatus = 15,
    EchoReq = 16,
    EchoRes = 17,
    SubmitJobBg = 18,
    Error = 19,
    StatusRes = 20,
    SubmitJobHigh = 21,
    SetClientId = 22,
    CanDoTimeout = 23,
    AllYours = 24,
    WorkException = 25,
    OptionReq = 26,
    OptionRes = 27,
    WorkData = 28,
    WorkWarning = 29,
    GrabJobUniq = 30,
    JobAssignUniq = 31,
    SubmitJobHighBg = 32,
    SubmitJobLow = 33,
    SubmitJobLowBg = 34,
    SubmitJobSched = 35,
    SubmitJobEpoch = 36,
    SubmitReduceJob = 37,
    SubmitReduceJobBackground = 38,
    GrabJobAll = 39,
    JobAssignAll = 40,
    GetStatusUnique = 41,
    StatusResUnique = 42,
}

impl PacketType {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Whether only a server sends it, or nobody does.
    #[must_use]
    pub fn is_of_server(self) -> bool {
        use PacketType as P;
        matches!(
            self,
            P::Unused
                | P::Noop
                | P::JobCreated
                | P::NoJob
                | P::JobAssign
                | P::EchoRes
                | P::Error
                | P::StatusRes
                | P::OptionRes
                | P::JobAssignUniq
                | P::JobAssignAll
                | P::StatusResUnique
        )
    }
}

/// Writes a response: its header, then the arguments with NULs between them. The bytes are copied
/// once, into the output.
pub(super) fn write_response(out: &mut BytesMut, kind: PacketType, arguments: &[&[u8]]) {
    let nuls = arguments.len().saturating_sub(1);
    let length = arguments.iter().map(|argument| argument.len()).sum::<usize>() + nuls;
    out.reserve(HEADER_BYTES + length);
    out.put_slice(&RESPONSE_MAGIC);
    out.put_u32(kind.number());
    // The header has no room for a greater length; no configuration allows them.
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    let mut is_first = true;
    for argument in arguments {
        if !is_first {
            out.put_u8(0);
        }
        is_first = false;
        out.put_slice(argument);
    }
}

/// Whether the input begins with this magic, or may do so when more of it is there.
pub(super) fn starts_like(input: &[u8], magic: &[u8; 4]) -> bool {
    let seen = input.len().min(magic.len());
    input.get(..seen) == magic.get(..seen)
}

/// The type and the data's length in the header of a packet, if the header is all there.
pub(super) fn read_header(input: &[u8]) -> Option<(u32, u32)> {
    let mut header = input.get(REQUEST_MAGIC.len()..HEADER_BYTES)?;
    Some((header.get_u32(), header.get_u32()))
}

/// Takes a packet with this much data off the input, its header included. `None` while more bytes
/// are needed.
pub(super) fn take_packet(input: &mut BytesMut, bytes: usize) -> Option<Bytes> {
    if input.len() - HEADER_BYTES < bytes {
        return None;
    }
    Some(input.split_to(HEADER_BYTES + bytes).freeze())
}
