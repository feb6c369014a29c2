/** How many digits of a currency are behind the point. The service says what is none. */
export function fractionDigits(currency) {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;
  } catch {
    return 0;
  }
}

/** An amount that was typed in won, dollars ..., in the currency's minor unit: NaN for what is none. By digits, as 0.1 is no double. */
export function minorUnits(text, currency) {
  const digits = fractionDigits(currency);
  const [, whole, fraction = ""] = /^(\d+)(?:\.(\d+))?$/.exec(text.replaceAll(/[,\s]/g, "")) ?? [];
  const amount = whole === undefined || fraction.length > digits ? NaN : Number(whole + fraction.padEnd(digits, "0"));
  return Number.isSafeInteger(amount) ? amount : NaN;
}

/** What is wrong with an amount that is none. */
export const amountHint = (currency) => (fractionDigits(currency) ? "must be an amount like 350.00" : "must be a whole number like 350000");
