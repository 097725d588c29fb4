package postrider_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	postrider "github.com/postrider/postrider/clients/go"
)

type verifyCase struct {
	Name             string            `json:"name"`
	Expected         string            `json:"expected"`
	Secrets          []string          `json:"secrets"`
	Headers          map[string]string `json:"headers"`
	Body             string            `json:"body_base64"`
	Now              int64             `json:"now"`
	ToleranceSeconds int64             `json:"tolerance_seconds"`
}

// table has the cases that all clients share.
func table(t *testing.T) (cases []verifyCase, badSecrets []struct{ Name, Secret string }) {
	t.Helper()
	var read struct {
		Cases      []verifyCase `json:"cases"`
		BadSecrets []struct{ Name, Secret string }
	}
	var bad struct {
		BadSecrets []struct{ Name, Secret string } `json:"bad_secrets"`
	}
	text := must(os.ReadFile("../verify-cases.json"))(t)
	for _, into := range []any{&read, &bad} {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return read.Cases, bad.BadSecrets
}

func (c verifyCase) header() http.Header {
	header := http.Header{}
	for name, value := range c.Headers {
		header.Set(name, value)
	}
	return header
}

func (c verifyCase) verifier() postrider.Verifier {
	return postrider.Verifier{
		Secrets:   c.Secrets,
		Tolerance: time.Duration(c.ToleranceSeconds) * time.Second,
		Now:       func() time.Time { return time.Unix(c.Now, 0) },
	}
}

func (c verifyCase) body() []byte {
	body, _ := base64.StdEncoding.DecodeString(c.Body)
	return body
}

func TestVerifyDecidesEachCaseAsTheTableSays(t *testing.T) {
	cases, _ := table(t)
	if len(cases) < 50 {
		t.Fatalf("the table has %d cases only", len(cases))
	}
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			outcome := "ok"
			if _, err := one.verifier().Verify(one.body(), one.header()); err != nil {
				var failure *postrider.VerificationError
				if !errors.As(err, &failure) {
					t.Fatal(err)
				}
				outcome = failure.Code
				for _, secret := range one.Secrets {
					if strings.Contains(fmt.Sprintf("%+v %#v", err, err), secret[6:]) {
						t.Error("the error shows the secret")
					}
				}
			}
			if outcome != one.Expected {
				t.Errorf("%s, expected %s", outcome, one.Expected)
			}
		})
	}
}

func TestVerifyRefusesASecretThatIsNoneWithoutShowingIt(t *testing.T) {
	cases, bad := table(t)
	for _, one := range bad {
		t.Run(one.Name, func(t *testing.T) {
			verifier := cases[0].verifier()
			verifier.Secrets = []string{one.Secret}
			_, err := verifier.Verify(cases[0].body(), cases[0].header())
			var failure *postrider.VerificationError
			if err == nil || errors.As(err, &failure) || (one.Secret != "" && strings.Contains(err.Error(), one.Secret)) {
				t.Error(err)
			}
		})
	}
}

func TestVerifyRefusesAHeaderThatIsThereTwice(t *testing.T) {
	cases, _ := table(t)
	for name := range cases[0].Headers {
		header := cases[0].header()
		header.Add(name, header.Get(name))
		_, err := cases[0].verifier().Verify(cases[0].body(), header)
		var failure *postrider.VerificationError
		if !errors.As(err, &failure) || failure.Code != postrider.MalformedHeader {
			t.Error(name, err)
		}
	}
}

func TestVerifyTellsTheIDAndTheTime(t *testing.T) {
	cases, _ := table(t)
	verified := must(cases[0].verifier().Verify(cases[0].body(), cases[0].header()))(t)
	if verified.ID != cases[0].Headers["webhook-id"] || verified.Timestamp.Unix() != 1614265330 {
		t.Error(verified)
	}
	if _, err := postrider.Verify(cases[0].body(), cases[0].header(), cases[0].Secrets...); err == nil {
		t.Error("an old webhook was accepted by the clock of today")
	}
	if _, err := postrider.Verify(cases[0].body(), cases[0].header()); err == nil {
		t.Error("a webhook was accepted without any secret")
	}
}
