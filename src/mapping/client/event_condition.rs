//! Conditions on the messages of an event: a slot that is given, or slots that have certain values.

use super::{
    EventSlot,
    verbs::{ConditionFile, Scalar},
};
use crate::mapping::template::SlotValue;

/// A compiled condition.
#[derive(Debug)]
pub struct EventCondition(Kind);

#[derive(Debug)]
enum Kind {
    /// The slot is given.
    Given(EventSlot),
    /// Each slot has one of these values.
    Equal(Vec<(EventSlot, Vec<Scalar>)>),
}

impl EventCondition {
    /// Compiles a condition of a file; `find` gives the slot of a name.
    pub(super) fn compile<E>(
        file: &ConditionFile,
        find: impl Fn(&str) -> Result<EventSlot, E>,
    ) -> Result<Self, E> {
        Ok(Self(match file {
            ConditionFile::Given(name) => Kind::Given(find(name)?),
            ConditionFile::Equal(values) => {
                let values =
                    values.iter().map(|(name, values)| Ok((find(name)?, values.as_slice().to_vec())));
                Kind::Equal(values.collect::<Result<_, E>>()?)
            }
        }))
    }

    /// True if the condition holds for these values.
    pub(crate) fn holds<'v>(&self, value: impl Fn(EventSlot) -> SlotValue<'v>) -> bool {
        match &self.0 {
            Kind::Given(slot) => value(*slot).is_given(),
            Kind::Equal(slots) => slots.iter().all(|(slot, wanted)| {
                let found = value(*slot);
                wanted.iter().any(|wanted| wanted.equals(&found))
            }),
        }
    }
}
