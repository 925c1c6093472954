//! `spindle why`.

use std::{
    io::{self, IsTerminal},
    slice,
};

use serde_json::Value;

use super::{native::Native, times::with_distance, view::text_of, web::ApiRequest};
use crate::{
    cli::WhyArgs,
    exit::Code,
    output::{Rows, print_all},
};

/// Says why a job is not running.
pub fn why(args: &WhyArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let path = format!("/api/v1/jobs/{}/why", args.id);
    let why: Value = native.ask(ApiRequest::get(&path), &format!("job {}", args.id))?;
    print_all(slice::from_ref(&why), args.native.json, || rows(&why))
}

fn rows(why: &Value) -> Rows {
    let field = |value: &Value, name: &str| value.get(name).map(text_of).unwrap_or_default();
    let (now, for_eyes) = (spindle_client::now(), io::stdout().is_terminal());
    let mut rows = Rows::new(&["reason", "what is known", "until", "what to do"]);
    let reasons = why.get("reasons").and_then(Value::as_array);
    for reason in reasons.into_iter().flatten() {
        let until = field(reason, "until");
        let until = if for_eyes { with_distance(&until, now) } else { until };
        let to_do = [field(reason, "next"), field(reason, "command")];
        let to_do = to_do.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ");
        rows.add([field(reason, "code"), field(reason, "text"), until, to_do]);
    }
    rows
}
