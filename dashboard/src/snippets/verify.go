package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Verify reports whether body was signed with the secret of this subscription (whsec_…).
func Verify(header http.Header, body []byte) bool {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(secret) == 0 {
		return false
	}
	timestamp := header.Get("webhook-timestamp")
	sentAt, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || math.Abs(float64(time.Now().Unix()-sentAt)) > 300 {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(header.Get("webhook-id") + "." + timestamp + "."))
	mac.Write(body)
	expected := mac.Sum(nil)
	// Several signatures during a rotation: one of them must fit.
	for _, signature := range strings.Fields(header.Get("webhook-signature")) {
		if !strings.HasPrefix(signature, "v1,") {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signature, "v1,"))
		if err == nil && hmac.Equal(given, expected) {
			return true
		}
	}
	return false
}
