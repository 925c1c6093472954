//! What must be durable before an answer may leave the process.
//!
//! A call of the engine answers at once, but what it says may still be taken back by a crash. So the
//! answer comes as a [`Gated`]: the value, closed until the log is durable up to its [`Gate`]. It can
//! be opened in four ways only: into an [`Outbox`](crate::Outbox), which holds back everything that
//! is put behind it; into another gated value ([`Gated::absorb`], [`Gated::and_then`]); when the gate
//! is open ([`Gated::release`]); or on purpose, with a reason ([`Gated::without_waiting`]).

/// How far the log must be durable: all records below this position. [`Gate::OPEN`] waits for
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gate(pub u64);

impl Gate {
    /// Nothing has to be durable.
    pub const OPEN: Gate = Gate(0);
}

/// A value that may leave the process only when the log is durable up to a gate.
#[must_use = "an answer that nobody opens never reaches its client; what was decided stays"]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gated<T> {
    value: T,
    gate: Gate,
}

impl<T> Gated<T> {
    /// A value behind a gate.
    pub fn new(value: T, gate: Gate) -> Gated<T> {
        Gated { value, gate }
    }

    /// A value that reveals nothing that is not durable.
    pub fn open(value: T) -> Gated<T> {
        Gated { value, gate: Gate::OPEN }
    }

    /// What the value waits for.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Something made of the value, behind the same gate.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Gated<U> {
        Gated { value: make(self.value), gate: self.gate }
    }

    /// Something made of the value and of what else the engine says: behind both gates.
    pub fn and_then<U>(self, make: impl FnOnce(T) -> Gated<U>) -> Gated<U> {
        let Gated { value, gate } = make(self.value);
        Gated { value, gate: gate.max(self.gate) }
    }

    /// Takes another value out: what the caller makes of it has to be put into this one.
    pub fn absorb<U>(&mut self, other: Gated<U>) -> U {
        self.gate = self.gate.max(other.gate);
        other.value
    }

    /// The value, if the log is durable that far.
    pub fn release(self, durable: Gate) -> Result<T, Gated<T>> {
        if self.gate <= durable { Ok(self.value) } else { Err(self) }
    }

    /// The value at once. `reason` says, for readers of the code, why it does no harm if a crash
    /// takes back what the value says.
    pub fn without_waiting(self, reason: &'static str) -> T {
        debug_assert!(!reason.is_empty(), "a reason is what makes this right");
        self.value
    }
}

impl<T, E> Gated<Result<T, E>> {
    /// A success at once, as [`Gated::without_waiting`]; a refusal still waits.
    pub fn success_without_waiting(self, reason: &'static str) -> Result<T, Gated<E>> {
        debug_assert!(!reason.is_empty(), "a reason is what makes this right");
        let gate = self.gate;
        self.value.map_err(|refused| Gated::new(refused, gate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_several_values_waits_for_the_last_of_them() {
        let made = Gated::new(1, Gate(5)).and_then(|one| Gated::new(one + 1, Gate(3)));
        assert_eq!((made.gate(), made), (Gate(5), Gated::new(2, Gate(5))));
        let mut whole = Gated::open(());
        assert_eq!(whole.absorb(Gated::new(7, Gate(9))), 7);
        assert_eq!(whole.map(|()| 8).release(Gate(8)), Err(Gated::new(8, Gate(9))));
        assert_eq!(Gated::new(8, Gate(9)).release(Gate(9)), Ok(8));
    }
}
