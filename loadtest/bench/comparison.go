package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// serveCommand is the hidden subcommand that serves one of the comparisons.
const serveCommand = "serve-comparison"

// takenBody is the losers' response of every comparison. It is encoded once: a JSON encoder's cost is no part of a claim
// flow, and its absence favors the comparisons.
var takenBody = []byte(`{"type":"about:blank","title":"Already taken","status":409,"detail":"Another driver has it.",` +
	`"code":"ALREADY_TAKEN","final":true}`)

// errTaken means that another driver has the dispatch.
var errTaken = errors.New("already taken")

// row is a row of the comparisons' table.
type row struct {
	ID          string `gorm:"primaryKey"`
	Status      string
	Round       int
	Version     int
	Region      string
	SiteAddress string
	Fee         int64
	AcceptedBy  *string
	AcceptedAt  *time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// TableName implements GORM's Tabler.
func (row) TableName() string { return "dispatches" }

// claimFunc gives the dispatch to the driver, or returns errTaken.
type claimFunc func(ctx context.Context, id, driver string) error

// serveComparison serves one way at address until it is killed.
func serveComparison(way, address, dsn, cache string) error {
	claim, err := claimer(way, dsn, cache)
	if err != nil {
		return err
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.POST("/v1/dispatches/:id/accept", func(c echo.Context) error {
		driver := strings.TrimPrefix(c.Request().Header.Get(echo.HeaderAuthorization), "Bearer ")
		switch err := claim(c.Request().Context(), c.Param("id"), driver); {
		case errors.Is(err, errTaken):
			return c.Blob(http.StatusConflict, "application/problem+json", takenBody)
		case err != nil:
			return c.String(http.StatusInternalServerError, err.Error())
		}
		won := map[string]any{"id": c.Param("id"), "status": "ACCEPTED"}
		return c.JSON(http.StatusOK, map[string]any{"result": "SUCCESS", "dispatch": won})
	})
	return e.Start(address)
}

func claimer(way, dsn, cache string) (claimFunc, error) {
	if way == wayEcho {
		return func(context.Context, string, string) error { return errTaken }, nil
	}
	db, err := openGORM(dsn)
	if err != nil {
		return nil, err
	}
	switch way {
	case waySimple:
		return simpleFlow(db, redis.NewClient(&redis.Options{Addr: cache})), nil
	case wayForUpdate:
		return forUpdate(db), nil
	case wayUpdate:
		return conditionalUpdate(db), nil
	}
	return nil, fmt.Errorf("no comparison is called %q", way)
}

// poolWords describes the comparisons' connection pool.
const poolWords = "GORM as it comes, its documentation's pool (10 idle, 100 open), go-redis as it comes"

// openGORM opens the database, with its pool, as GORM's documentation does.
func openGORM(dsn string) (*gorm.DB, error) {
	db, err := gorm.Open(mysql.Open(dsn), &gorm.Config{})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxIdleConns(10)
	pool.SetMaxOpenConns(100)
	pool.SetConnMaxLifetime(time.Hour)
	return db, nil
}

// simpleFlow is the tutorials' flow: a Redis lock around read, check and save, and a release that compares the value. It
// has one winner as long as no lock is lost, and else two.
func simpleFlow(db *gorm.DB, cache *redis.Client) claimFunc {
	return func(ctx context.Context, id, driver string) error {
		key, token := "dispatch:lock:"+id, rand.Text()
		locked, err := cache.SetNX(ctx, key, token, 5*time.Second).Result()
		if err != nil {
			return err
		}
		if !locked {
			return errTaken
		}
		defer func() {
			if own, err := cache.Get(ctx, key).Result(); err == nil && own == token {
				cache.Del(ctx, key)
			}
		}()
		var r row
		if err := db.WithContext(ctx).First(&r, "id = ?", id).Error; err != nil {
			return err
		}
		if r.Status != "PENDING" {
			return errTaken
		}
		r.accept(driver)
		return db.WithContext(ctx).Save(&r).Error
	}
}

// forUpdate reads, checks and saves under the row lock.
func forUpdate(db *gorm.DB) claimFunc {
	return func(ctx context.Context, id, driver string) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var r row
			if err := tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).First(&r, "id = ?", id).Error; err != nil {
				return err
			}
			if r.Status != "PENDING" {
				return errTaken
			}
			r.accept(driver)
			return tx.Save(&r).Error
		})
	}
}

// conditionalUpdate lets one statement decide.
func conditionalUpdate(db *gorm.DB) claimFunc {
	return func(ctx context.Context, id, driver string) error {
		done := db.WithContext(ctx).Model(&row{}).Where("id = ? AND status = ? AND round = ?", id, "PENDING", 1).
			Updates(map[string]any{
				"status": "ACCEPTED", "accepted_by": driver, "accepted_at": time.Now(), "version": gorm.Expr("version + 1"),
			})
		if done.Error == nil && done.RowsAffected == 0 {
			return errTaken
		}
		return done.Error
	}
}

// accept changes the row in memory.
func (r *row) accept(driver string) {
	now := time.Now()
	r.Status, r.AcceptedBy, r.AcceptedAt = "ACCEPTED", &driver, &now
	r.Version++
}
