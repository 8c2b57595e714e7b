//! Questions to the threads that own the machines.

use std::sync::Arc;
use std::time::Duration;

use sedge_base::ShardId;
use tokio::sync::oneshot;

use super::error::ApiError;
use crate::runtime::{Letter, Shared, View};

/// A shard that does not answer in this time is stuck or drowned.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `question` on the thread of `shard`.
pub(super) async fn ask<T, Q>(shared: &Shared, shard: ShardId, question: Q) -> Result<T, ApiError>
where
    T: Send + 'static,
    Q: FnOnce(&View<'_>) -> T + Send + 'static,
{
    receive(shard, send(shared, shard, question)).await
}

/// Runs `question` on all threads at the same time; answers by shard.
pub(super) async fn ask_all<T, Q>(shared: &Shared, question: Q) -> Result<Vec<T>, ApiError>
where
    T: Send + 'static,
    Q: Fn(&View<'_>) -> T + Send + Sync + 'static,
{
    let question = Arc::new(question);
    let mut asked = Vec::new();
    for number in 0..shared.boxes.len() {
        let question = Arc::clone(&question);
        let shard = ShardId(u16::try_from(number).unwrap_or(0));
        asked.push((shard, send(shared, shard, move |view| question(view))));
    }
    let mut answers = Vec::new();
    for (shard, receiver) in asked {
        answers.push(receive(shard, receiver).await?);
    }
    Ok(answers)
}

fn send<T, Q>(shared: &Shared, shard: ShardId, question: Q) -> oneshot::Receiver<T>
where
    T: Send + 'static,
    Q: FnOnce(&View<'_>) -> T + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let query = move |view: &View<'_>| {
        // Whoever asked may have gone.
        let _ = sender.send(question(view));
    };
    shared.post(shard, Letter::Query(Box::new(query)));
    receiver
}

/// Waits for what `shard` answers.
pub(super) async fn receive<T>(shard: ShardId, receiver: oneshot::Receiver<T>) -> Result<T, ApiError> {
    match tokio::time::timeout(PATIENCE, receiver).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(ApiError::Stopping),
        Err(_) => Err(ApiError::Busy(shard)),
    }
}

/// Runs `question` on the thread of the node.
pub(super) async fn ask_node<T, Q>(shared: &Shared, question: Q) -> Result<T, ApiError>
where
    T: Send + 'static,
    Q: FnOnce(&sedge_cluster::Node) -> T + Send + 'static,
{
    ask(shared, ShardId(0), |view| view.node.map(question)).await?.ok_or(ApiError::Stopping)
}
