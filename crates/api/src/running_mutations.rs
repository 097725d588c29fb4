//! Running mutations (requests that change something). **A mutation that has begun is completed**,
//! even if its client disconnects or its deadline passes.
//!
//! Each runs in a task of its own. Their number is limited, per tenant and in total, so that a
//! client cannot accumulate them by disconnecting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::{IntoResponse as _, Response};
use postrider_domain::ids::TenantId;

use crate::layers;
use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// The number of running mutations, by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningMutations(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    of_tenant: HashMap<TenantId, usize>,
}

/// A mutation that runs. It is counted until this is dropped.
#[derive(Debug)]
struct RunningMutation {
    running: RunningMutations,
    tenant: TenantId,
}

impl RunningMutations {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, unless a limit is reached.
    fn enter(
        &self,
        tenant: &TenantId,
        tenant_max: usize,
        total_max: usize,
    ) -> Result<RunningMutation, Problem> {
        let mut counts = self.lock();
        let of_tenant = counts.of_tenant.get(tenant).copied().unwrap_or(0);
        if of_tenant >= tenant_max {
            let detail = format!(
                "{tenant_max} changes of this tenant are being carried out: wait for some of them"
            );
            return Err(Problem::new(Code::RateLimited, detail).retry_after(1));
        }
        if counts.total >= total_max {
            let detail =
                "too many changes are being carried out on this server: try again in a moment";
            return Err(Problem::new(Code::Unavailable, detail).retry_after(1));
        }
        counts.total += 1;
        *counts.of_tenant.entry(tenant.clone()).or_default() += 1;
        Ok(RunningMutation { running: self.clone(), tenant: tenant.clone() })
    }

    /// The number of running mutations.
    pub(crate) fn count(&self) -> usize {
        self.lock().total
    }
}

impl Drop for RunningMutation {
    fn drop(&mut self) {
        let mut counts = self.running.lock();
        counts.total -= 1;
        if let Some(of_tenant) = counts.of_tenant.get_mut(&self.tenant) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                counts.of_tenant.remove(&self.tenant);
            }
        }
    }
}

/// Runs a mutation to its end, whether its caller waits for it or not.
pub(crate) async fn to_the_end(
    state: &ApiState,
    tenant: &TenantId,
    mutation: impl Future<Output = Response> + Send + 'static,
) -> Response {
    let settings = state.settings();
    let place =
        state.running().enter(tenant, settings.tenant_mutations_max, settings.mutations_max);
    let place = match place {
        Ok(place) => place,
        Err(problem) => return problem.into_response(),
    };
    let task = tokio::spawn(async move {
        let answer = mutation.await;
        drop(place);
        answer
    });
    match task.await {
        Ok(answer) => answer,
        Err(error) => layers::panicked(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_limited_per_tenant_and_in_total_and_counts_go_down_again() {
        let (running, one) = (RunningMutations::default(), TenantId::default_tenant());
        let other: TenantId = "other".parse().unwrap();
        let enter = |tenant: &TenantId| running.enter(tenant, 2, 3);
        let places = [enter(&one).unwrap(), enter(&one).unwrap()];
        assert_eq!(enter(&one).unwrap_err().code(), Code::RateLimited);
        let third = enter(&other).unwrap();
        assert_eq!(enter(&other).unwrap_err().code(), Code::Unavailable);
        drop(places);
        assert_eq!(running.count(), 1);
        drop((enter(&one).unwrap(), third));
        assert_eq!(running.count(), 0);
        assert!(running.lock().of_tenant.is_empty(), "nothing is remembered for ever");
    }
}
