//! Elasticity without the world: what a site consists of, how it is measured, when its groups grow and shrink, in which order.
//!
//! [`Site`] is the checked form of a site file. [`Scaler`] is the machine that takes samples and what became of actions, and says what
//! is to be done next. It opens no socket and reads no clock; the controller in `shell/` does both (Pham, EL-07 to EL-26).

mod alarm;
mod alarming;
mod api;
mod group;
mod history;
mod machine;
mod plan;
mod policy;
mod relief;
pub mod site;
mod status;
mod store;

pub use self::alarm::AlarmState;
pub use self::alarming::{AlarmInput, Alarming};
pub use self::api::{
    Action, ActionId, ActionKind, Decision, Event, EventKind, Notice, ScaleInput, ScaleOutput, processors,
};
pub use self::machine::{Scaler, ScalerLimits};
pub use self::plan::{Present, Step, Verb, plan, removal};
pub use self::relief::{ClientLoad, Move, NodeLoad, Relief, relief};
pub use self::site::{Site, SiteError};
pub use self::status::{AlarmStatus, GroupStatus, MemberState, MemberStatus, ScaleStatus};
pub use self::store::{Aggregate, Store};
