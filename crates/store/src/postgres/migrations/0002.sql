-- What is due at one destination, soonest first: a lane that overflowed is read back in this order.
CREATE INDEX open_due_of ON postrider.deliveries_open (destination, due_at, id) WHERE state = 1;
