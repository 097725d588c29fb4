// Package nethttp is an example: a middleware for net/http that lets a webhook through only where Postrider has
// signed its raw body.
package nethttp

import (
	"bytes"
	"io"
	"net/http"

	postrider "github.com/postrider/postrider/clients/go"
)

// Verified answers 401 unless one of the secrets has signed the raw body, which next can read again.
func Verified(next http.Handler, secrets ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A body that is cut off has no valid signature.
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
		if _, err := postrider.Verify(body, r.Header, secrets...); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
