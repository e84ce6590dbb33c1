// SPDX-License-Identifier: GPL-2.0

//! Records of state machines: each event with what was decided, and what the driver did, as lines
//! of text.
//!
//! ```text
//! step 8 1 3 3e8 5 0 7 9 64 0 3 2 1 1 0 0 0 0 1 0     event, effect, the machine after it
//! did 1 64                                            an operation
//! ```
//!
//! All numbers are hexadecimal. A driver writes the lines while it holds the lock that guards its
//! machine. `tools/replay` reads events and operations back, gives the events to the same machine,
//! and compares the text of each step with the driver's.

use core::fmt;

/// A value that a record writes as numbers.
pub trait Words: Sized {
    /// Writes the numbers, each with a space before it.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads the value from the next numbers; returns `None` if they do not stand for one.
    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self>;
}

macro_rules! number_words {
    ($($number:ty)*) => {$(
        impl Words for $number {
            fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " {self:x}")
            }

            fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
                words.next()?.try_into().ok()
            }
        }
    )*};
}

number_words! { u8 u16 u32 u64 }

impl Words for i32 {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // CAST: the same bits.
        (*self as u32).write(f)
    }

    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        // CAST: the same bits.
        Some(u32::read(words)? as i32)
    }
}

impl Words for bool {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        u8::from(*self).write(f)
    }

    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        match words.next()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Words> Words for Option<T> {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.is_some().write(f)?;
        match self {
            Some(value) => value.write(f),
            None => Ok(()),
        }
    }

    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        Some(match bool::read(words)? {
            true => Some(T::read(words)?),
            false => None,
        })
    }
}

/// Implements [`Words`] for an `enum`, from the number of each variant and the names of what is in
/// it; for a `struct`, from the names of all its fields; or for a `state` with `repr(u8)` and
/// `from_u8`.
#[macro_export]
macro_rules! words {
    (enum $name:ident { $(
        $number:literal => $variant:ident
            $( ( $($value:ident),+ ) )? $( { $($field:ident),+ $(,)? } )?
    ),+ $(,)? }) => {
        impl $crate::record::Words for $name {
            fn write(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self {$(
                    Self::$variant $( ( $($value),+ ) )? $( { $($field),+ } )? => {
                        $crate::record::Words::write(&$number, f)?;
                        $( $( $crate::record::Words::write($value, f)?; )+ )?
                        $( $( $crate::record::Words::write($field, f)?; )+ )?
                    }
                )+}
                Ok(())
            }

            fn read(words: &mut impl ::core::iter::Iterator<Item = u64>) -> Option<Self> {
                Some(match words.next()? {
                    $(
                        $number => {
                            $( $( let $value = $crate::record::Words::read(words)?; )+ )?
                            $( $( let $field = $crate::record::Words::read(words)?; )+ )?
                            Self::$variant $( ( $($value),+ ) )? $( { $($field),+ } )?
                        }
                    )+
                    _ => return None,
                })
            }
        }
    };
    (struct $name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::record::Words for $name {
            fn write(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let Self { $($field),+ } = self;
                $( $crate::record::Words::write($field, f)?; )+
                Ok(())
            }

            fn read(words: &mut impl ::core::iter::Iterator<Item = u64>) -> Option<Self> {
                Some(Self { $($field: $crate::record::Words::read(words)?),+ })
            }
        }
    };
    (state $name:ident) => {
        impl $crate::record::Words for $name {
            fn write(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                // CAST: the discriminant of a `repr(u8)`.
                $crate::record::Words::write(&(*self as u8), f)
            }

            fn read(words: &mut impl ::core::iter::Iterator<Item = u64>) -> Option<Self> {
                Self::from_u8($crate::record::Words::read(words)?)
            }
        }
    };
}

/// A state machine whose steps are recorded.
pub trait Machine: Words {
    /// The name of the machine in the lines of its records.
    const NAME: &'static str;
    /// An event of the machine.
    type Event: Words + Copy + fmt::Debug;
    /// The decision about an event.
    type Effect: Words + Copy + fmt::Debug;
    /// An operation that the driver is about to carry out. It is recorded before it is done, so
    /// that what follows from it is recorded later.
    type Operation: Words + Copy + PartialEq + fmt::Debug;

    /// Handles an event: changes the state and returns what was decided.
    fn handle(&mut self, event: Self::Event) -> Self::Effect;
}

/// A line that is written.
pub enum Entry<'a, M: Machine> {
    /// An event was handled.
    Step {
        /// The event that happened.
        event: M::Event,
        /// The decision about it.
        effect: M::Effect,
        /// The machine after that.
        after: &'a M,
    },
    /// The driver is about to do something.
    Did(M::Operation),
}

impl<M: Machine> fmt::Display for Entry<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step {
                event,
                effect,
                after,
            } => {
                f.write_str("step")?;
                event.write(f)?;
                effect.write(f)?;
                after.write(f)
            }
            Self::Did(operation) => {
                f.write_str("did")?;
                operation.write(f)
            }
        }
    }
}
