//! Judges of the end of a turn, compared on recordings of turns: how often each cuts the user off, and how long each waits.
//!
//! Everything runs in virtual time: [`Listener`] finds the pauses of a recording with the voice detector of the product, and asks
//! the model at each [look](Look) that some [judge](Family) takes. A judge then says from these looks how much silence ends the
//! turn, as if the silence lasted for ever. A pause that is longer than that is a cut-off.
//!
//! - [`pauses`]: the pauses of a recording, and the looks at them
//! - [`families`]: the judges, each with the settings that are tried
//! - [`curve`]: the figures of a judge over its settings, and the table

pub mod curve;
pub mod families;
pub mod pauses;

pub use self::{
    curve::{Figures, Outcome, figures, format_table},
    families::Family,
    pauses::{Listener, Look, Pause, Turn},
};
