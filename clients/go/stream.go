package postrider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// The server sends a sign of life every 15 s.
const silenceMax = 60 * time.Second

// StreamEvent is what a stream tells. Name is attempt, transition, dead, warning, filter_over_budget, lagged or closed;
// what does not belong to it is empty. After lagged and closed the stream ends.
type StreamEvent struct {
	Name           string          `json:"-"`
	Delivery       *Delivery       `json:"delivery"`
	Attempt        *Attempt        `json:"attempt"`
	DestinationID  string          `json:"destination_id"`
	URL            string          `json:"url"`
	Transition     *Transition     `json:"transition"`
	Warning        json.RawMessage `json:"warning"`
	SubscriptionID string          `json:"subscription_id"`
	// Events, LastEventID and Since belong to filter_over_budget.
	Events      int64      `json:"events"`
	LastEventID string     `json:"last_event_id"`
	Since       *time.Time `json:"since"`
	// Missed says how many events a reader that was too slow has missed.
	Missed int64 `json:"missed"`
	// Reason says why the stream was closed.
	Reason string `json:"reason"`
}

// Stream tells what happens, live. Close it in the end.
type Stream struct {
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc
	ctx    context.Context
	alarm  *time.Timer
	event  StreamEvent
	err    error
}

// Stream opens a stream of what happens from now on. When it ends, open another one.
func (c *Client) Stream(ctx context.Context) (*Stream, error) {
	return c.StreamOf(ctx, StreamQuery{})
}

// StreamQuery says what a stream tells. What is empty is left out.
type StreamQuery struct {
	// Outcome: of the attempts only those that failed, or were delivered.
	Outcome AttemptOutcome
	// Destination: of this one only.
	Destination string
	// WithoutBodies: attempts without the body of the receiver's answer.
	WithoutBodies bool
}

// StreamOf opens a stream with a choice of what it tells.
func (c *Client) StreamOf(ctx context.Context, q StreamQuery) (*Stream, error) {
	values := query("outcome", q.Outcome, "destination", q.Destination)
	if q.WithoutBodies {
		values.Set("body", "no")
	}
	streaming, cancel := context.WithCancel(ctx)
	s := &Stream{ctx: ctx, cancel: cancel, alarm: time.AfterFunc(silenceMax, cancel)}
	request, err := c.api.request(streaming, call{method: http.MethodGet, path: path("stream"), query: values}, "")
	if err != nil {
		s.stop()
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	client := *c.api.http
	client.Timeout = 0
	response, err := client.Do(request)
	if err != nil {
		s.stop()
		return nil, &ConnectionError{"GET /v1/stream", 1, err}
	}
	if response.StatusCode != http.StatusOK {
		defer s.stop()
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return nil, problem(response, body, 1)
	}
	s.body, s.lines = response.Body, bufio.NewReader(response.Body)
	return s, nil
}

// Next waits for the next event. It is false when the stream has ended: see Err.
func (s *Stream) Next() bool {
	var name string
	var data bytes.Buffer
	for s.err == nil {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.end(err)
			return false
		}
		s.alarm.Reset(silenceMax)
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "event:"):
			name = strings.TrimSpace(line[len("event:"):])
		case strings.HasPrefix(line, "data:"):
			data.WriteString(strings.TrimSpace(line[len("data:"):]))
		case line == "" && name != "" && data.Len() > 0:
			s.event = StreamEvent{Name: name}
			if json.Unmarshal(data.Bytes(), &s.event) != nil {
				s.end(errors.New("an event of the stream is not the JSON that was expected"))
				return false
			}
			return true
		}
	}
	return false
}

// Event is the event that Next waited for.
func (s *Stream) Event() StreamEvent { return s.event }

// Err is what ended the stream; nil where the server ended it, or the context.
func (s *Stream) Err() error {
	if errors.Is(s.err, io.EOF) || s.ctx.Err() != nil {
		return nil
	}
	return s.err
}

// Close ends the stream.
func (s *Stream) Close() error {
	s.stop()
	return s.body.Close()
}

func (s *Stream) stop() {
	s.alarm.Stop()
	s.cancel()
}

func (s *Stream) end(err error) {
	s.stop()
	if errors.Is(err, io.EOF) {
		s.err = io.EOF
		return
	}
	s.err = &ConnectionError{"GET /v1/stream", 1, err}
}
