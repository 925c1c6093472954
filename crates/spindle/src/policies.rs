//! The policies of all doors.

use spindle_core::Policies;

/// The policies of all doors. A door that is off declares its policy as well: the log may still
/// have jobs that it accepted earlier.
pub fn policies(gearman_attempts_max: u32) -> Policies {
    [
        spindle_api::policy(),
        spindle_workq::policy(),
        spindle_lightjq::policy(),
        spindle_jobq::policy(),
    ]
    .into_iter()
    .chain(spindle_gearman::policies(gearman_attempts_max))
    .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use spindle_core::command::Submit;
    use spindle_core::job::{Backoff, Origin};
    use spindle_core::{
        BytesRef, Command, Decision, Defaults, JobId, Limit, Place, Requeue, Source, State, Type,
        decide,
    };

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// The tries of a job that says nothing itself.
    fn tries_of(door: Origin) -> spindle_core::Tries {
        let mut state = State::new(7, Defaults { policies: policies(0), ..Defaults::default() });
        let mut decision = Decision::default();
        let payload = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(1), Bytes::from_static(b"mail"), door, payload);
        submit.constraints_revision = 0;
        for command in [Command::ReserveIds { until: 10 }, Command::Submit(Box::new(submit))] {
            decide(&state, &command, 1_000_000, &mut decision).unwrap();
            let events = std::mem::take(&mut decision.events);
            events.iter().for_each(|(event, _)| state.evolve(event, Place::default()));
        }
        state.tries_of(&state.image(JobId(1)).unwrap())
    }

    #[test]
    fn every_door_gives_its_jobs_the_tries_its_document_gives() {
        let lightjq = Backoff {
            base_ms: 1_000,
            factor_thousandths: 2_000,
            cap_ms: HOUR_MS,
            jitter_thousandths: 200,
        };
        let api = Backoff { base_ms: 5_000, factor_thousandths: 3_000, ..lightjq };
        for (door, attempts_max, fails_max, backoff) in [
            (Origin::Api, 25, 5, api),
            (Origin::Workq, 0, 1, Backoff::NONE),
            (Origin::Gearman, 0, 1, Backoff::NONE),
            (Origin::GearmanDraft, 0, 1, Backoff::NONE),
            (Origin::Lightjq, 11, 11, lightjq),
            (Origin::Jobq, 0, 1, Backoff::NONE),
        ] {
            let tries = tries_of(door);
            let from = Source::Door;
            assert_eq!(tries.attempts_max, Limit { value: attempts_max, from }, "{door:?}");
            assert_eq!(tries.fails_max, Limit { value: fails_max, from }, "{door:?}");
            assert_eq!(tries.backoff, Limit { value: backoff, from }, "{door:?}");
        }
    }

    #[test]
    fn doors_keep_done_jobs_and_treat_lost_ones_as_their_documents_say() {
        for (door, keep_ms, on_lost_lease, error_type) in [
            (Origin::Api, Some(HOUR_MS), Requeue::InPlace, Type::Bytes),
            (Origin::Workq, None, Requeue::InPlace, Type::Bytes),
            (Origin::Gearman, Some(HOUR_MS), Requeue::ToTail, Type::Bytes),
            (Origin::GearmanDraft, Some(HOUR_MS), Requeue::ToTail, Type::Bytes),
            (Origin::Lightjq, Some(24 * HOUR_MS), Requeue::InPlace, Type::Msgpack),
            (Origin::Jobq, None, Requeue::InPlace, Type::Bytes),
        ] {
            let policies = policies(0);
            let policy = policies.of(door);
            let rules = (policy.keep_ms, policy.on_lost_lease, policy.error_type);
            assert_eq!(rules, (keep_ms, on_lost_lease, error_type), "{door:?}");
        }
    }

    #[test]
    fn job_retries_hold_for_both_protocols_of_gearman_and_no_other_door() {
        let policies = policies(3);
        let most = Origin::ALL.map(|door| policies.of(door).attempts_max);
        assert_eq!(most, [25, 0, 3, 3, 11, 0]);
    }
}
