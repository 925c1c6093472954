//! `spindle clock accept`: says that the machine's clock is right.

use super::{native::Native, web::ApiRequest};
use crate::{
    cli::{ClockArgs, ClockCommand},
    exit::Code,
};

/// Runs `spindle clock`.
pub fn clock(args: &ClockArgs) -> anyhow::Result<Code> {
    let ClockCommand::Accept = args.command;
    let native = Native::at(&args.reach)?;
    native.answer(ApiRequest::post("/api/v1/clock/accept"), "clock")?;
    Ok(Code::Ok)
}
