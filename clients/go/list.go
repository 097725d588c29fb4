package postrider

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Page is one page of a list.
type Page[T any] struct {
	Data []T `json:"data"`
	// NextCursor asks for the next page; empty on the last one.
	NextCursor string `json:"next_cursor"`
}

// List goes through a list and fetches a page when it is needed:
//
//	list := client.Deliveries.List(ctx, postrider.DeliveryQuery{State: postrider.Dead})
//	for list.Next() {
//		fmt.Println(list.Value().ID)
//	}
//	if err := list.Err(); err != nil { … }
type List[T any] struct {
	ctx    context.Context
	api    *api
	path   string
	query  url.Values
	page   Page[T]
	at     int
	isLast bool
	err    error
}

func newList[T any](ctx context.Context, a *api, path string, query url.Values) *List[T] {
	if query == nil {
		query = url.Values{}
	}
	return &List[T]{ctx: ctx, api: a, path: path, query: query, at: -1}
}

// PageSize says how many entries a page has, 1 to 1000. It does not limit how many entries Next goes through.
func (l *List[T]) PageSize(size int) *List[T] {
	l.query.Set("limit", strconv.Itoa(size))
	return l
}

// Next goes to the next entry. It is false at the end and after an error: see Err.
func (l *List[T]) Next() bool {
	l.at++
	for l.at >= len(l.page.Data) {
		if l.isLast || l.err != nil {
			return false
		}
		page, err := l.Page(l.page.NextCursor)
		if err != nil {
			l.err = err
			return false
		}
		l.page, l.at, l.isLast = *page, 0, page.NextCursor == ""
	}
	return true
}

// Value is the entry that Next went to.
func (l *List[T]) Value() T { return l.page.Data[l.at] }

// Err is what ended the list too early; nil where nothing did.
func (l *List[T]) Err() error { return l.err }

// Page fetches one page, for those who keep the cursor themselves. An empty cursor asks for the first one.
func (l *List[T]) Page(cursor string) (*Page[T], error) {
	query := url.Values{}
	for name, values := range l.query {
		query[name] = values
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	page := new(Page[T])
	if err := l.api.send(l.ctx, call{method: http.MethodGet, path: l.path, query: query}, page); err != nil {
		return nil, err
	}
	return page, nil
}

// Collect gives the first max entries; all of them where max is negative.
func (l *List[T]) Collect(max int) ([]T, error) {
	entries := []T{}
	for len(entries) != max && l.Next() {
		entries = append(entries, l.Value())
	}
	return entries, l.Err()
}

// query builds a query from names and values. What is empty is left out.
func query(namesAndValues ...any) url.Values {
	values := url.Values{}
	for n := 0; n < len(namesAndValues); n += 2 {
		text := ""
		switch value := namesAndValues[n+1].(type) {
		case string:
			text = value
		case DeliveryState:
			text = string(value)
		case DestinationState:
			text = string(value)
		case AttemptOutcome:
			text = string(value)
		case time.Time:
			text = rfc3339(value)
		case int:
			if value != 0 {
				text = strconv.Itoa(value)
			}
		}
		if text != "" {
			values.Set(namesAndValues[n].(string), text)
		}
	}
	return values
}

// rfc3339 writes a time; nothing for the zero time.
func rfc3339(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}
