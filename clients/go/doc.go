// Package postrider is a client for Postrider, the webhook delivery server, and has Verify for those who receive its
// webhooks. It uses the standard library alone.
//
// A Client has one field for each kind of thing that the API has:
//
//	client, err := postrider.New("http://127.0.0.1:8080", key)
//	sent, err := client.Events.Send(ctx, postrider.NewEvent{Type: "task.updated", Data: task})
//
// A call that fails is repeated where that can help. A mutation carries one Idempotency-Key through all its attempts,
// so it has its effect once, also where an answer was lost.
package postrider
