package postrider

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Format     string            `json:"format"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	AllOf      []schema          `json:"allOf"`
	OneOf      []schema          `json:"oneOf"`
	Enum       []string          `json:"enum"`
}

// TestTypesHaveTheFieldsOfTheOpenAPIDocument notices a change of the API.
func TestTypesHaveTheFieldsOfTheOpenAPIDocument(t *testing.T) {
	text, err := os.ReadFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	schemas := document.Components.Schemas
	for _, value := range []any{
		Tenant{}, Key{}, KeyCreated{}, EventAccepted{}, EventSummary{}, Misfit{}, EventDetail{}, Certificate{}, Subscription{},
		WorkfrontOptions{},
		SubscriptionWithSecret{}, TestOutcome{}, Timings{}, Delivery{}, DeliveryDetail{}, Attempt{}, NextStep{}, Wait{},
		Standing{}, Unblock{}, RetryPlace{}, Schedule{}, ScheduleSlot{}, Explanation{}, CountThreshold{}, ShareThreshold{}, TimeThreshold{}, Thresholds{},
		Destination{}, Counters{}, Transition{}, ReplayFilter{}, ReplayOutcomes{}, Replay{}, Ledger{}, Span{}, Stats{}, Limit{},
		FilterVerdict{}, AuditEntry{}, Policy{}, AttemptPolicy{}, CircuitPolicy{}, MassFailurePolicy{}, RecoveryPolicy{},
		Retention{}, RetryPolicy{}, SubscriptionPolicyLimits{}, SubscriptionPolicy{}, SubscriptionAttemptPolicy{},
		SubscriptionRetryPolicy{}, SubscriptionRecoveryPolicy{}, EffectivePolicy{}, DestinationRate{}, DestinationRecovery{},
		EventType{}, Catalogue{}, OwnCatalogue{}, Erasure{}, Match{}, TriedEvent{}, FilterTrialAnswer{},
		DestinationSummary{}, AttemptCounts{}, HourOfAttempts{}, FailureCount{}, RecentAttempt{}, DestinationFigures{},
		DestinationStats{}, Arrivals{}, RetriesDue{}, DueCount{}, DueHour{}, DeadLetters{}, DeadGroup{}, SentRequest{}, SentHeader{}, RateLimit{}, PortalLink{}, PortalLinkCreated{}, Theme{},
		AlertTarget{}, FiringAlert{}, AlertTestResult{}, Backup{}, Setting{}, Server{}, Disk{}, Lanes{}, Lane{},
		MassFailureState{}, Node{}, SimulationAnswer{}, SimulatedPlan{}, LateBy{}, SimulatedChange{}, SimulatedSample{},
		NewSubscriptionPolicy{}, NewTheme{}, NewPortalLink{}, Simulation{}, FilterTrial{},
	} {
		kind := reflect.TypeOf(value)
		expected := properties(schemas, schemas[kind.Name()])
		found := fields(kind)
		for name, property := range expected {
			field, isThere := found[name]
			if !isThere {
				t.Errorf("%s has no field for %s", kind.Name(), name)
				continue
			}
			delete(found, name)
			checkField(t, kind.Name()+"."+name, field, property)
		}
		for name := range found {
			t.Errorf("%s has a field for %s, which is not in the document", kind.Name(), name)
		}
	}
	checkWords(t, schemas["DeliveryState"].Enum, Queued, InFlight, Waiting, Delivered, Dead, Cancelled)
	checkWords(t, schemas["DestinationState"].Enum, Enabled, Disabled, Frozen)
	checkWords(t, schemas["ReplayState"].Enum, ReplayRunning, ReplayPaused, ReplayFinished, ReplayCancelled)
	checkWords(t, schemas["AttemptOutcome"].Enum, AttemptDelivered, AttemptFailed)
	checkWords(t, schemas["ErasureState"].Enum, Erasing, Scrubbing, ErasureFinished)
	checkWords(t, schemas["Conduct"].Enum, Accept, Flag, Refuse)
}

func checkWords[T ~string](t *testing.T, expected []string, found ...T) {
	t.Helper()
	var texts []string
	for _, word := range found {
		texts = append(texts, string(word))
	}
	if !reflect.DeepEqual(texts, expected) {
		t.Errorf("%v, expected %v", texts, expected)
	}
}

// checkField compares what a nil would lose: a number or a time that may be null needs a pointer.
func checkField(t *testing.T, name string, field reflect.Type, property schema) {
	isNullable := false
	word, _ := property.Type.(string)
	if list, isList := property.Type.([]any); isList {
		for _, one := range list {
			if one == "null" {
				isNullable = true
			} else {
				word = one.(string)
			}
		}
	}
	isTime := property.Format == "date-time"
	inner := field
	if field.Kind() == reflect.Pointer {
		inner = field.Elem()
	}
	if isTime != (inner == reflect.TypeOf(time.Time{})) {
		t.Errorf("%s: time or not", name)
	}
	// In requests what is empty is left out.
	isAnswer := !strings.HasPrefix(name, "New") && !strings.HasPrefix(name, "Simulation.") && !strings.HasPrefix(name, "FilterTrial.")
	if isAnswer && (isTime || word == "integer" || word == "number") {
		if isNullable != (field.Kind() == reflect.Pointer) {
			t.Errorf("%s: pointer or not", name)
		}
	}
	kinds := map[string]reflect.Kind{"integer": reflect.Int, "number": reflect.Float64, "boolean": reflect.Bool}
	if kind, isKnown := kinds[word]; isKnown {
		if property.Format == "int64" {
			kind = reflect.Int64
		}
		if inner.Kind() != kind {
			t.Errorf("%s is %v, expected %v", name, inner.Kind(), kind)
		}
	}
}

func properties(schemas map[string]schema, one schema) map[string]schema {
	if one.Ref != "" {
		return properties(schemas, schemas[one.Ref[strings.LastIndex(one.Ref, "/")+1:]])
	}
	found := map[string]schema{}
	for name, property := range one.Properties {
		found[name] = property
	}
	for _, part := range one.AllOf {
		for name, property := range properties(schemas, part) {
			found[name] = property
		}
	}
	return found
}

func fields(kind reflect.Type) map[string]reflect.Type {
	found := map[string]reflect.Type{}
	for n := 0; n < kind.NumField(); n++ {
		field := kind.Field(n)
		if field.Anonymous {
			for name, inner := range fields(field.Type) {
				found[name] = inner
			}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		found[name] = field.Type
	}
	return found
}
