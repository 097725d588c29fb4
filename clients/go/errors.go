package postrider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// ProblemError says why the server refused a request: its problem document (RFC 9457).
type ProblemError struct {
	// Status is the HTTP status.
	Status int `json:"-"`
	// Code is the stable name of the problem, such as invalid_field.
	Code string `json:"code"`
	// Title is the problem in a few words.
	Title string `json:"title"`
	// Detail says what is wrong this time, and what to do.
	Detail string `json:"detail"`
	// Field is the offending field, such as filter.all[2].op; empty where it is no field.
	Field string `json:"field"`
	// ExistingID names what exists already, where that is the problem.
	ExistingID string `json:"existing_id"`
	// Pointer is the place of the fault in a payload or schema, as a JSON pointer; empty where there is none.
	Pointer string `json:"pointer"`
	// RetryAfter is what the server's Retry-After says; nil where it says nothing.
	RetryAfter *time.Duration `json:"-"`
	// Attempts says how many times the request was sent.
	Attempts int `json:"-"`
}

func (e *ProblemError) Error() string {
	place := ""
	if e.Field != "" {
		place = " (" + e.Field + ")"
	}
	return fmt.Sprintf("postrider: %d %s%s: %s", e.Status, e.Code, place, e.Detail)
}

// HasCode says whether err is a problem with this code.
func HasCode(err error, code string) bool {
	var problem *ProblemError
	return errors.As(err, &problem) && problem.Code == code
}

// ConnectionError says that no usable answer arrived: no connection, a connection that broke, or a time limit.
type ConnectionError struct {
	// Call is the method and the path.
	Call string
	// Attempts says how many times the request was sent.
	Attempts int
	// Err is the cause.
	Err error
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("postrider: %s: no answer after %d attempts: %v", e.Call, e.Attempts, e.Err)
}

// Unwrap gives the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Timeout says whether it was a time limit.
func (e *ConnectionError) Timeout() bool {
	var timeout net.Error
	return errors.Is(e.Err, context.DeadlineExceeded) || (errors.As(e.Err, &timeout) && timeout.Timeout())
}

// problem reads the error of a response that is no success.
func problem(response *http.Response, body []byte, attempts int) *ProblemError {
	found := &ProblemError{}
	if json.Unmarshal(body, found) != nil || found.Code == "" {
		found = &ProblemError{
			Code:   "unknown",
			Detail: "the answer is not a problem document: check the url of the server and what is in front of it",
		}
	}
	found.Status = response.StatusCode
	found.Attempts = attempts
	found.RetryAfter = retryAfter(response.Header.Get("Retry-After"), time.Now())
	return found
}

func retryAfter(value string, now time.Time) *time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		if wait = at.Sub(now); wait < 0 {
			wait = 0
		}
	} else {
		return nil
	}
	return &wait
}
