//! JSON Pointers, which name the fields of payloads.

const POINTER_BYTES_MAX: usize = 256;
const STEPS_MAX: usize = 32;

/// A JSON Pointer (RFC 6901), taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub key: String,
    /// The same as the place in an array.
    pub index: Option<u64>,
}

/// Whether a text is a JSON Pointer that can be followed: of at most 256 bytes and 32 steps.
pub fn is_pointer(text: &str) -> bool {
    Pointer::read(text).is_some()
}

impl Pointer {
    pub fn read(text: &str) -> Option<Pointer> {
        if text.len() > POINTER_BYTES_MAX {
            return None;
        }
        let Some(rest) = text.strip_prefix('/') else {
            return text.is_empty().then(|| Pointer { steps: Vec::new() });
        };
        let steps: Vec<Step> = rest.split('/').map(Step::read).collect::<Option<_>>()?;
        (steps.len() <= STEPS_MAX).then_some(Pointer { steps })
    }
}

impl Step {
    fn read(escaped: &str) -> Option<Step> {
        let mut key = String::with_capacity(escaped.len());
        let mut letters = escaped.chars();
        while let Some(letter) = letters.next() {
            key.push(match letter {
                '~' => match letters.next()? {
                    '0' => '~',
                    '1' => '/',
                    _ => return None,
                },
                other => other,
            });
        }
        let digits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits && (key == "0" || !key.starts_with('0'));
        let index = if plain { key.parse().ok() } else { None };
        Some(Step { key, index })
    }
}
